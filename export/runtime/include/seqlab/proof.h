/// @file
/// The proof that a bundle is, on this machine, the model that was trained. It is in the library seqlab_proof, which
/// contains seqlab_runtime too.
///
/// @code{.cpp}
/// #include <iostream>
/// #include <seqlab/proof.h>
///
/// int main() {
///   const auto report = seqlab::Verify("bundles/mine");
///   if (!report.ok()) {
///     std::cerr << report.status().message() << "\n";
///     return 2;
///   }
///   for (const seqlab::Check& check : report->checks) {
///     if (!check.ok) std::cout << check.kind << ", " << check.subject << ": " << check.note << "\n";
///   }
///   return report->ok() ? 0 : 1;
/// }
/// @endcode
#ifndef SEQLAB_PROOF_H_
#define SEQLAB_PROOF_H_

#include <optional>
#include <string>
#include <vector>

#include "seqlab/runtime.h"

namespace seqlab {

/// Longest time that a proof may take, in seconds: a graph that nobody has proven may never end.
constexpr double kProofSeconds = 3600.0;

/// Errors of a runtime's numbers against the float64 reference, relative to the reference's RMS.
struct Errors {
  double rms = 0.0;      ///< RMS of the differences
  double torch = 0.0;    ///< PyTorch's own RMS error
  double limit = 0.0;    ///< largest `rms` that passes
  double largest = 0.0;  ///< largest error of a single number, which has no limit
};

/// One comparison of a proof.
struct Check {
  std::string kind;              ///< kind, such as files, signature, prefill or greedy: docs/bundle.md lists all
  std::string subject;           ///< subject, such as a file or a case
  bool ok = false;               ///< true if it passed
  std::string note;              ///< why it failed, or a remark; often empty
  std::optional<Errors> errors;  ///< errors, where numbers were compared
};

/// Divergence of a runtime's token or class distributions from float64's, over the case whose logits are all kept.
struct Divergence {
  double kl = 0.0;      ///< mean KL divergence, in nats
  double kl_p99 = 0.0;  ///< its 99th percentile, in nats
  double top1 = 0.0;    ///< fraction of positions with the same likeliest token or class
};

/// Findings of a proof.
struct Report {
  std::string provider;                  ///< provider that ran the bundle, "cpu" or "cuda"
  std::string onnxruntime;               ///< version of onnxruntime
  std::string precision;                 ///< precision of the bundle
  std::vector<Check> checks;             ///< checks, in the order in which they were made
  std::optional<Divergence> divergence;  ///< divergence, if all checks passed and the golden file has the logits

  /// Returns true if there is a check and every one passed.
  SEQLAB_EXPORT bool ok() const;
};

/// Proves a bundle on this machine, as docs/bundle.md says, and changes nothing in it. A file that is not as it was
/// written, and numbers that differ, are checks of the report that fail. Fails with
/// - kNotFound if the folder is no bundle, or onnxruntime's library is not found,
/// - kDamagedBundle if the manifest or the golden file is not valid, onnxruntime cannot load a graph, or the proof does
///   not end within `seconds`,
/// - kUnsupported and kInvalidArgument as `Model::Open`.
SEQLAB_EXPORT Result<Report> Verify(const std::string& folder, const OpenOptions& options = {},
                                    double seconds = kProofSeconds);

}  // namespace seqlab

#endif  // SEQLAB_PROOF_H_
