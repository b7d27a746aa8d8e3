/// @file
/// The proof that a bundle is, on this machine, the model that was trained: of the library seqlab_proof, which has all of
/// seqlab_runtime too.
#ifndef SEQLAB_PROOF_H_
#define SEQLAB_PROOF_H_

#include <optional>
#include <string>
#include <vector>

#include "seqlab/runtime.h"

namespace seqlab {

/// Longest that a proof may take: a graph that nobody has proven may never end.
constexpr double kProofSeconds = 3600.0;

/// How far a runtime's numbers are from the float64 reference, relative to the reference's RMS.
struct Errors {
  double rms = 0.0;     ///< of the differences
  double torch = 0.0;   ///< PyTorch's own
  double limit = 0.0;   ///< the most that `rms` may be
  double largest = 0.0; ///< of a single number, which is not gated
};

/// One thing that was compared.
struct Check {
  std::string kind;             ///< such as files, signature, prefill or greedy: docs/bundle.md has all
  std::string subject;          ///< such as a file, or a cell
  bool ok = false;              ///< whether it is as it should be
  std::string note;             ///< what is wrong, or else is to be said
  std::optional<Errors> errors; ///< where numbers were compared
};

/// How far a runtime's distributions of a token or class are from float64's, where all logits were kept.
struct Divergence {
  double kl = 0.0;     ///< the mean, in nats
  double kl_p99 = 0.0; ///< the 99th percentile
  double top1 = 0.0;   ///< the share of places at which the likeliest is the same
};

/// What a proof has found.
struct Report {
  std::string provider;                 ///< as of OpenOptions
  std::string onnxruntime;              ///< its version
  std::string precision;                ///< the bundle's
  std::vector<Check> checks;            ///< in the order in which they were made
  std::optional<Divergence> divergence; ///< where all is well so far

  /// Whether something was checked and everything is as it should be.
  SEQLAB_EXPORT bool ok() const;
};

/// Proves a bundle on this machine, as docs/bundle.md says, and changes nothing in it. What is wrong with its values is in
/// the report; what is no bundle at all, cannot be opened, or does not end within so many seconds, is a Status.
SEQLAB_EXPORT Result<Report> Verify(const std::string& folder, const OpenOptions& options = {},
                                    double seconds = kProofSeconds);

}  // namespace seqlab

#endif  // SEQLAB_PROOF_H_
