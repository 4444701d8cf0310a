// All objects whose keys begin alike, page by page.
//
// A free function; blocks; any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/s3/object_store.h"

namespace cairn {

// Calls on_page for each page; its error ends the listing. "prefix/" and "prefix/x/", which programs that show folders
// make, are left out: objects without bytes. Errors: those of List; DATA_LOSS: the listing does not end.
absl::Status ListObjects(ObjectStore& store, const std::string& bucket, const std::string& prefix,
                         const std::function<absl::Status(std::vector<S3Object> objects)>& on_page);

}  // namespace cairn
