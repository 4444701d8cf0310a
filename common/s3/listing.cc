#include "common/s3/listing.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/s3/limits.h"
#include "common/s3/location.h"

namespace cairn {

absl::Status ListObjects(ObjectStore& store, const std::string& bucket, const std::string& prefix,
                         const std::function<absl::Status(std::vector<S3Object> objects)>& on_page) {
  std::string token;
  for (int pages = 0; pages < kS3PagesMax; ++pages) {
    CAIRN_ASSIGN_OR_RETURN(S3Page page, store.List(bucket, prefix, token));
    std::erase_if(page.objects, [](const S3Object& one) { return one.bytes == 0 && absl::EndsWith(one.key, "/"); });
    CAIRN_RETURN_IF_ERROR(on_page(std::move(page.objects)));
    if (page.next.empty()) return absl::OkStatus();
    if (page.next == token) break;
    token = std::move(page.next);
  }
  return absl::DataLossError(absl::StrCat(S3Address(bucket, prefix), ": the server's listing does not end"));
}

}  // namespace cairn
