#include "common/data/record_file.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/data/byte_reader.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

std::atomic<int> files_held_open{0};

std::shared_ptr<const FileReader> HoldOpen(std::shared_ptr<const FileReader> file) {
  if (files_held_open.fetch_add(1) >= kFilesHeldOpenMax) {
    files_held_open.fetch_sub(1);
    return nullptr;
  }
  const FileReader* raw = file.get();
  return {raw, [file = std::move(file)](const FileReader*) mutable {
            file.reset();
            files_held_open.fetch_sub(1);
          }};
}

bool IsGzip(absl::string_view begin) { return begin.size() >= 2 && begin[0] == '\x1f' && begin[1] == '\x8b'; }

absl::Status NoRecords(const std::string& path) {
  return absl::DataLossError(path + ": not a TFRecord file: its first twelve bytes are not a record's header");
}

}  // namespace

absl::Status RecordFile::Annotated(int64_t record, const absl::Status& status) const {
  return Annotate(status, absl::StrFormat("%s: record %d", path_, record));
}

absl::StatusOr<std::unique_ptr<const RecordFile>> RecordFile::Open(const std::string& path, int64_t unpacked_bytes_max,
                                                                   Visitor visit) {
  std::unique_ptr<RecordFile> file(new RecordFile(path));
  CAIRN_ASSIGN_OR_RETURN(file->file_, FileReader::Open(path));
  if (file->file_->size() == 0) return absl::DataLossError(path + ": an empty file");
  char magic[2] = {};
  const size_t begin = static_cast<size_t>(std::min<uint64_t>(2, file->file_->size()));
  CAIRN_RETURN_IF_ERROR(file->file_->ReadAt(0, begin, magic));
  if (IsGzip({magic, begin})) {
    file->packed_ = true;
    CAIRN_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
    absl::StatusOr<std::string> bytes =
        reader.ReadToEnd(static_cast<uint64_t>(std::max<int64_t>(unpacked_bytes_max, 0)));
    if (absl::IsResourceExhausted(bytes.status())) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%s: a gzip file has no random access, and what it holds does not fit into the %d MiB that are "
          "left of data.cache_mib; unpack the file, or raise data.cache_mib",
          path, unpacked_bytes_max >> 20));
    }
    if (!bytes.ok()) return bytes.status();
    file->unpacked_ = *std::move(bytes);
    file->unpacked_.shrink_to_fit();
    file->file_ = nullptr;
  }
  CAIRN_RETURN_IF_ERROR(file->Scan(visit));
  file->places_.shrink_to_fit();
  if (file->file_ != nullptr) file->file_ = HoldOpen(std::move(file->file_));
  return file;
}

absl::Status RecordFile::Scan(Visitor visit) {
  ByteWindow window = packed_ ? ByteWindow(unpacked_) : ByteWindow(file_);
  uint64_t at = 0;
  while (at < window.size()) {
    const int64_t record = static_cast<int64_t>(places_.size());
    if (record >= kRecordsMax) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%s: more than %d records; cut it into several files", path_, kRecordsMax));
    }
    const absl::Status torn = Annotated(
        record,
        absl::DataLossError(absl::StrFormat(
            "the file ends within it, at byte %d; it is cut off: make or fetch the file again", window.size())));
    if (window.size() - at < kRecordHeaderBytes) return record == 0 ? NoRecords(path_) : torn;
    CAIRN_ASSIGN_OR_RETURN(const absl::string_view header, window.At(at, kRecordHeaderBytes));
    uint64_t length = 0;
    if (!ParseRecordHeader(header.data(), &length)) {
      if (record == 0) return NoRecords(path_);
      return Annotated(record,
                       absl::DataLossError(absl::StrFormat(
                           "its length has a wrong CRC, at byte %d; the file was altered or is damaged: make or "
                           "fetch it again",
                           at)));
    }
    if (length > kRecordBytesMax) {
      return Annotated(record,
                       absl::DataLossError(absl::StrFormat("%d bytes; at most %d are read", length, kRecordBytesMax)));
    }
    const uint64_t begin = at + kRecordHeaderBytes, end = begin + length;
    if (window.size() - begin < length + kRecordFooterBytes) return torn;
    places_.push_back(at);
    if (absl::Status status = visit(window, begin, end); !status.ok()) {
      // Checks whether the cause is that the bytes were altered.
      std::string scratch;
      places_.push_back(end + kRecordFooterBytes);
      if (const auto whole = Read(record, &scratch); !whole.ok()) return whole.status();
      return Annotated(record, status);
    }
    at = end + kRecordFooterBytes;
  }
  places_.push_back(at);
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> RecordFile::Read(int64_t record, std::string* scratch) const {
  CAIRN_CHECK(record >= 0 && record < size(), "no such record");
  const uint64_t at = places_[record], bytes = places_[record + 1] - at;
  absl::string_view framed;
  if (packed_) {
    framed = absl::string_view(unpacked_).substr(at, bytes);
  } else {
    std::shared_ptr<const FileReader> file = file_;
    if (file == nullptr) {
      CAIRN_ASSIGN_OR_RETURN(file, FileReader::Open(path_));
    }
    scratch->resize(bytes);
    CAIRN_RETURN_IF_ERROR(Annotated(record, file->ReadAt(at, bytes, scratch->data())));
    framed = *scratch;
  }
  uint64_t length = 0;
  const bool same =
      ParseRecordHeader(framed.data(), &length) && length + kRecordHeaderBytes + kRecordFooterBytes == bytes;
  const absl::string_view data = framed.substr(kRecordHeaderBytes, bytes - kRecordHeaderBytes - kRecordFooterBytes);
  if (!same || !RecordIsWhole({data.data(), data.size()}, data.data() + data.size())) {
    return Annotated(record,
                     absl::DataLossError(absl::StrFormat(
                         "its data has a wrong CRC, at byte %d; the file was altered or is damaged: make or fetch it "
                         "again",
                         at)));
  }
  return data;
}

}  // namespace cairn
