// The bundles that a server has opened, by name.
#ifndef SEQLAB_SERVE_SERVED_H_
#define SEQLAB_SERVE_SERVED_H_

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "metrics.h"
#include "seqlab/engine.h"

namespace seqlab::serve {

// An opened bundle. Whoever answers a request holds it, so that a newer one can take its place meanwhile.
struct Served {
  std::string name;
  Model model;
  std::optional<Engine> engine;  // of a language model
  std::shared_ptr<Timings> timings = std::make_shared<Timings>();
  std::timed_mutex one_at_a_time;  // of texts that are translated or classified
};

class Bundles {
 public:
  // A bundle's name is that of its folder.
  Bundles(std::vector<std::string> folders, const OpenOptions& open, const EngineOptions& engine)
      : folders_(std::move(folders)), open_(open), engine_(engine) {}

  // Opens every folder, and then replaces what was open. Fails if one cannot be opened, and then keeps what was open.
  Status Open();

  // Returns the bundle of this name, or the only one if the name is empty. Throws HttpError if there is none.
  std::shared_ptr<Served> Get(const std::string& name) const;

  // Returns all, in the order of their folders.
  std::vector<std::shared_ptr<Served>> All() const;

 private:
  const std::vector<std::string> folders_;
  const OpenOptions open_;
  const EngineOptions engine_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Served>> all_;
};

}  // namespace seqlab::serve

#endif  // SEQLAB_SERVE_SERVED_H_
