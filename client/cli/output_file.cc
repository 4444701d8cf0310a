#include "client/cli/output_file.h"

#include <filesystem>

#include "absl/strings/str_format.h"

namespace cairn {

absl::Status CheckOutputFile(const std::string& output) {
  std::error_code error;
  if (std::filesystem::is_directory(output, error)) {
    return absl::InvalidArgumentError(absl::StrFormat("-o %s: is a folder; name a file in it", output));
  }
  if (std::filesystem::exists(output, error) &&
      !std::filesystem::is_regular_file(output, error)) {  // it would be replaced
    return absl::InvalidArgumentError(absl::StrFormat("-o %s: is a device or a pipe; name a file", output));
  }
  const std::filesystem::path folder = std::filesystem::absolute(output, error).parent_path();
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("-o %s: there is no folder %s; make it first", output, folder.string()));
  }
  return absl::OkStatus();
}

}  // namespace cairn
