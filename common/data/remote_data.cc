#include "common/data/remote_data.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/digest.h"
#include "common/base/roots.h"
#include "common/data/wrapped_dataset.h"

namespace cairn {
namespace {

constexpr size_t kVersionBytes = 17;  // '#' and 16 digits

// The same text, or error, about the paths of the job.
std::string TextOfJob(std::string text, const std::vector<FetchedData::Copy>& copies) {
  for (const FetchedData::Copy& copy : copies) text = absl::StrReplaceAll(text, {{copy.local->path(), copy.path}});
  return text;
}
absl::Status AsOfJob(const absl::Status& status, const std::vector<FetchedData::Copy>& copies) {
  if (status.ok()) return status;
  return {status.code(), TextOfJob(std::string(status.message()), copies)};
}

// Holds the local files while the data set is open.
class FetchedDataset : public WrappedDataset {
 public:
  FetchedDataset(std::shared_ptr<const Dataset> examples, FetchedData fetched, const std::string& version)
      : WrappedDataset(std::move(examples)), copies_(std::move(fetched.copies)), info_(this->examples().info()) {
    info_.set_path(fetched.given.path() + version);
  }

  const v1::DataInfo& info() const override { return info_; }
  std::vector<int64_t> input_sizes() const override { return examples().input_sizes(); }
  std::string no_training() const override { return OfJob(examples().no_training()); }
  std::string no_labels() const override { return OfJob(examples().no_labels()); }
  const TextStore* texts() const override { return examples().texts(); }
  std::vector<int64_t> text_places() const override { return examples().text_places(); }
  Element element() const override { return examples().element(); }
  bool in_memory() const override { return examples().in_memory(); }
  absl::Status Read(v1::Split split, int64_t index, float* example, float* label) const override {
    return AsOfJob(examples().Read(split, index, example, label), copies_);
  }
  absl::Status ReadBytes(v1::Split split, int64_t index, uint8_t* example, float* label) const override {
    return AsOfJob(examples().ReadBytes(split, index, example, label), copies_);
  }

 private:
  std::string OfJob(const std::string& text) const { return TextOfJob(text, copies_); }

  const std::vector<FetchedData::Copy> copies_;
  v1::DataInfo info_;
};

bool LeadsUp(absl::string_view path) {
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part == "..") return true;
  }
  return false;
}

}  // namespace

bool HasRemote(const v1::Data& data, const RemoteData& remote) {
  return !data.has_external() &&
         (remote.Has(data.path()) || std::any_of(data.targets().begin(), data.targets().end(),
                                                 [&](const auto& target) { return remote.Has(target.pictures()); }));
}

std::string VersionText(const FetchedData& fetched) {
  std::string all;
  for (const FetchedData::Copy& copy : fetched.copies) absl::StrAppend(&all, copy.local->version(), "\n");
  return all.empty() ? "" : absl::StrFormat("#%016x", Checksum(all.data(), all.size()));
}

bool AreOtherVersions(const std::string& path, const std::string& other) {
  const size_t end = path.size() - std::min(path.size(), kVersionBytes);
  return path.size() == other.size() && path != other && path.size() > kVersionBytes && path[end] == '#' &&
         path.compare(0, end + 1, other, 0, end + 1) == 0;
}

absl::StatusOr<FetchedData> FetchData(const v1::Data& data, RemoteData* remote, absl::Duration wait_max) {
  FetchedData fetched{data, data, {}};
  CAIRN_RETURN_IF_ERROR(CheckHasRoot("data.path", data.path()));
  for (int i = 0; i < data.targets_size(); ++i) {
    CAIRN_RETURN_IF_ERROR(CheckHasRoot(absl::StrCat("data.targets[", i, "].pictures"), data.targets(i).pictures()));
  }
  if (remote == nullptr || data.has_external()) return fetched;
  const auto fetch = [&](const std::string& field, const std::string& path, std::string* to) -> absl::Status {
    auto local = remote->Fetch(path, wait_max);
    if (!local.ok()) return Annotate(local.status(), field);
    *to = (*local)->path();
    fetched.copies.push_back({path, *std::move(local)});
    return absl::OkStatus();
  };
  const bool whole = remote->Has(data.path());
  if (whole) CAIRN_RETURN_IF_ERROR(fetch("data.path", data.path(), fetched.data.mutable_path()));
  for (int i = 0; i < data.targets_size(); ++i) {
    const std::string& pictures = data.targets(i).pictures();
    const std::string field = absl::StrCat("data.targets[", i, "].pictures");
    if (remote->Has(pictures)) {
      CAIRN_RETURN_IF_ERROR(fetch(field, pictures, fetched.data.mutable_targets(i)->mutable_pictures()));
    } else if (whole && !absl::StartsWith(pictures, "/") && LeadsUp(pictures)) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": \"", pictures, "\" leads out of data.path, ", data.path(),
                       ", of which alone the objects are fetched; name the folder by its root, as NAME:/FOLDER"));
    }
  }
  return fetched;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenFetchedDataset(FetchedData fetched, const Shape& input_shape) {
  absl::StatusOr<std::shared_ptr<const Dataset>> opened = OpenDataset(fetched.data, input_shape);
  if (fetched.copies.empty()) return opened;
  if (!opened.ok()) return AsOfJob(opened.status(), fetched.copies);
  const std::string version = VersionText(fetched);
  return std::make_shared<FetchedDataset>(*std::move(opened), std::move(fetched), version);
}

}  // namespace cairn
