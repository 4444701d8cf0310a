#include "common/formats/zip_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zip.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/formats/growth.h"
#include "common/formats/plain_file.h"

namespace cairn {
namespace {

constexpr mode_t kFileMode = 0644;

using Archive = std::unique_ptr<zip_t, decltype(&zip_discard)>;
using Member = std::unique_ptr<zip_file_t, decltype(&zip_fclose)>;

absl::Status OpenError(const std::string& path, int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  if (code == ZIP_ER_NOENT) return absl::NotFoundError(absl::StrCat(path, ": there is no such file"));
  if (code == ZIP_ER_OPEN || code == ZIP_ER_READ)
    return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be read: ", text));
  return absl::DataLossError(absl::StrCat(path, ": not a zip archive, or a damaged one: ", text));
}

}  // namespace

absl::Status WriteZip(const std::string& beside, const std::vector<ZipMember>& members) {
  int code = 0;
  Archive archive(zip_open(beside.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code), zip_discard);
  if (archive == nullptr) return absl::InternalError(absl::StrCat(beside, ": cannot create a file there"));
  for (const ZipMember& member : members) {
    zip_source_t* const source = member.file.empty()
                                     ? zip_source_buffer(archive.get(), member.text.data(), member.text.size(), 0)
                                     : zip_source_file(archive.get(), member.file.c_str(), 0, -1);
    const zip_int64_t index =
        source == nullptr ? -1 : zip_file_add(archive.get(), member.name.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      if (source != nullptr) zip_source_free(source);
      return absl::InternalError(absl::StrCat(beside, ": cannot add ", member.name, ": ", zip_strerror(archive.get())));
    }
    zip_set_file_compression(archive.get(), static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0);
  }
  if (zip_close(archive.get()) != 0) {
    return absl::InternalError(absl::StrCat(beside, ": cannot write: ", zip_strerror(archive.get())));
  }
  (void)archive.release();  // zip_close has freed it
  if (::chmod(beside.c_str(), kFileMode) == 0) return absl::OkStatus();
  return FileError(beside, "cannot set its mode");
}

absl::StatusOr<Buffer> ReadZipMember(const std::string& path, const std::string& name, uint64_t bytes_max) {
  absl::StatusOr<FileDescriptor> file = OpenPlainFile(path, O_RDONLY);
  if (absl::IsNotFound(file.status())) return OpenError(path, ZIP_ER_NOENT);
  CAIRN_RETURN_IF_ERROR(file.status());
  int code = 0;
  const Archive archive(zip_fdopen(file->get(), ZIP_CHECKCONS, &code), zip_discard);
  if (archive != nullptr) file->Release();  // it is the archive's
  if (archive == nullptr) return OpenError(path, code);
  zip_stat_t stat;
  if (zip_stat(archive.get(), name.c_str(), 0, &stat) != 0) {
    return absl::NotFoundError(absl::StrCat(path, ": ", name, " is not in the archive"));
  }
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
  if ((stat.valid & kNeeded) != kNeeded || GrowsTooMuch(stat.comp_size, stat.size)) {
    return absl::DataLossError(absl::StrCat(path, ": ", name, ": its size cannot be"));
  }
  if (stat.size > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", name, ": ", stat.size, " bytes; at most ", bytes_max, " are read"));
  }
  const Member member(zip_fopen(archive.get(), name.c_str(), 0), zip_fclose);
  if (member == nullptr) return absl::DataLossError(absl::StrCat(path, ": ", name, ": ", zip_strerror(archive.get())));
  Buffer bytes = Buffer::Allocate(stat.size);
  for (size_t at = 0; at < bytes.size();) {
    const zip_int64_t n = zip_fread(member.get(), bytes.mutable_data() + at, bytes.size() - at);
    if (n <= 0)
      return absl::DataLossError(
          absl::StrCat(path, ": ", name, ": ", n < 0 ? zip_file_strerror(member.get()) : "ends early"));
    at += static_cast<size_t>(n);
  }
  uint8_t beyond;  // reading to the end compares the checksum
  const zip_int64_t rest = zip_fread(member.get(), &beyond, 1);
  if (rest != 0)
    return absl::DataLossError(
        absl::StrCat(path, ": ", name, ": ", rest < 0 ? zip_file_strerror(member.get()) : "is longer than it says"));
  return bytes;
}

}  // namespace cairn
