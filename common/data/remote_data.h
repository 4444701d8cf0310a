// RemoteData: data sets that do not lie in files of this machine. They are fetched into local files first, which the
// readers of this folder then open as any others.
//
//   1. FetchData         fetches what a job's data names, and gives the job's data with local paths in their place
//   2. OpenFetchedDataset opens that; errors and info() name the paths of the job
//
// Thread rule: RemoteData is thread-safe; the functions may be called from any thread. Invariants:
//   1. Local files do not change, and stay, while their LocalCopy lives; a data set holds those that it reads.
//   2. Nothing of what lies remotely is opened before all of it is here.
//   3. Workers tell by info().path() whether they have the same: "data:/x#1f2e3d4c5b6a7980", with the objects' version.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/remote_files.h"
#include "common/data/dataset.h"

namespace cairn {

class RemoteData {
 public:
  virtual ~RemoteData() = default;
  // Whether the path lies remotely, so that Fetch is needed.
  virtual bool Has(absl::string_view path) const = 0;
  // Waits until it is here, at most wait_max: what is not here then is fetched further. Errors: UNAVAILABLE: it is
  // still being fetched, says how far, or cannot be fetched now; NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED (no
  // room for it), FAILED_PRECONDITION (it changed meanwhile), INVALID_ARGUMENT (a name that no file can have),
  // CANCELLED.
  virtual absl::StatusOr<std::shared_ptr<const LocalCopy>> Fetch(const std::string& path, absl::Duration wait_max) = 0;
  // What is being fetched ends with CANCELLED, and so does every later call.
  virtual void Stop() = 0;
};

struct FetchedData {
  struct Copy {
    std::string path;  // the job's
    std::shared_ptr<const LocalCopy> local;
  };
  v1::Data given;  // the job's
  v1::Data data;   // with local paths
  std::vector<Copy> copies;
};

// Whether any part of it is fetched.
bool HasRemote(const v1::Data& data, const RemoteData& remote);

// Of all that was fetched: what info().path() ends with; "": everything is local.
std::string VersionText(const FetchedData& fetched);
// Whether two paths of info() are of the same data set in different versions.
bool AreOtherVersions(const std::string& path, const std::string& other);

// remote: null: every path is local. Errors: those of Fetch, with the field's name; INVALID_ARGUMENT.
absl::StatusOr<FetchedData> FetchData(const v1::Data& data, RemoteData* remote, absl::Duration wait_max);

// Errors: those of OpenDataset.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenFetchedDataset(FetchedData fetched, const Shape& input_shape);

}  // namespace cairn
