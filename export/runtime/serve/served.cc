#include "served.h"

#include <algorithm>
#include <filesystem>

#include "error.h"
#include "request.h"

namespace seqlab::serve {

Status Bundles::Open() {
  std::vector<std::shared_ptr<Served>> opened;
  for (const std::string& folder : folders_) {
    Result<Model> model = Model::Open(folder, open_);
    if (!model.ok()) return model.status();
    // A link is resolved, so that `champion` can name another bundle later under the same name.
    const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
    const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
    for (const auto& other : opened) {
      if (other->name == name) return {StatusCode::kInvalidArgument, Join("two bundles are named ", name)};
    }
    auto served = std::shared_ptr<Served>(new Served{name, *model});
    if (model->info().decodes && !model->info().reads_source) {
      Result<Engine> engine = Engine::Start(*model, engine_);
      if (!engine.ok()) return engine.status();
      served->engine.emplace(std::move(*engine));
    }
    opened.push_back(std::move(served));
  }
  const std::lock_guard lock(mutex_);
  all_.swap(opened);
  return {};
}

std::shared_ptr<Served> Bundles::Get(const std::string& name) const {
  const std::vector<std::shared_ptr<Served>> all = All();
  if (name.empty() && all.size() == 1) return all[0];
  std::string names;
  for (const auto& served : all) {
    if (served->name == name) return served;
    names += Join(names.empty() ? "" : ", ", served->name);
  }
  const std::string asked = name.empty() ? "model is missing" : Join("there is no model \"", name, "\"");
  throw HttpError{name.empty() ? 400 : 404, Join(asked, "; here are ", names), "model", "model_not_found"};
}

std::vector<std::shared_ptr<Served>> Bundles::All() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

}  // namespace seqlab::serve
