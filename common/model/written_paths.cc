#include "common/model/written_paths.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/callback_check.h"
#include "common/model/path_template.h"

namespace cairn {
namespace {

// "/models/m-{epoch}.keras" gives the directory "/models"; a path without names in braces gives the file itself.
WrittenPath ModelFile(std::string field, const std::string& filepath) {
  const auto path = PathTemplate::Parse(filepath);
  if (!path.ok()) return {std::move(field), filepath, false, true};  // it was rejected before
  if (path->Names().empty()) return {std::move(field), path->Beginning(), false, true};
  const std::string beginning = path->Beginning();
  const size_t slash = beginning.rfind('/');
  return {std::move(field), slash == std::string::npos ? "." : beginning.substr(0, slash + 1), true, true};
}

}  // namespace

bool StartsFromFile(const v1::JobSpec& spec) {
  return !spec.resume_from().empty() || !spec.initial_weights().empty() || BackupOf(spec) != nullptr;
}

std::vector<WrittenPath> WrittenPaths(const v1::JobSpec& spec) {
  std::vector<WrittenPath> all;
  const auto add = [&](WrittenPath written) {
    const bool known =
        std::any_of(all.begin(), all.end(), [&](const WrittenPath& other) { return other.path == written.path; });
    if (!written.path.empty() && !known) all.push_back(std::move(written));
  };
  add({"data.cache_dir", spec.data().cache_dir(), true});
  for (int i = 0; i < spec.callbacks_size(); ++i) {
    const v1::Callback& callback = spec.callbacks(i);
    const std::string name = absl::StrCat("callbacks[", i, "].", CallbackName(callback), ".");
    if (callback.has_backup_and_restore())
      add({name + "backup_dir", callback.backup_and_restore().backup_dir(), true, true});
    if (callback.has_model_checkpoint()) add(ModelFile(name + "filepath", callback.model_checkpoint().filepath()));
    if (callback.has_csv_logger()) add({name + "filename", callback.csv_logger().filename(), false});
    if (callback.has_tensorboard()) add({name + "log_dir", callback.tensorboard().log_dir(), true});
  }
  add({"checkpoints.dir", spec.checkpoints().dir(), true, true});
  return all;
}

}  // namespace cairn
