#include "common/formats/onnx/onnx_external.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/roots.h"
#include "common/formats/limits.h"
#include "common/formats/plain_file.h"
#include "common/model/onnx/onnx_tensor.h"

namespace cairn {
namespace {

using Tensor = onnx::TensorProto;

std::string Shown(const std::string& text) { return absl::CEscape(text.substr(0, 128)); }

template <typename... Args>
absl::Status Bad(const Tensor& tensor, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", Shown(tensor.name()), "\": ", args...));
}

// The place of a tensor's bytes.
struct Place {
  std::string location;
  uint64_t offset = 0;
  int64_t length = -1;  // -1: as many as the shape needs
};

absl::StatusOr<Place> PlaceOf(const Tensor& tensor) {
  Place place;
  for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
    const std::string& key = entry.key();
    if (key == "location") {
      place.location = entry.value();
    } else if (key == "offset") {
      if (!absl::SimpleAtoi(entry.value(), &place.offset))
        return Bad(tensor, "its offset \"", Shown(entry.value()), "\" is not a whole number from 0");
    } else if (key == "length") {
      if (!absl::SimpleAtoi(entry.value(), &place.length) || place.length < 0)
        return Bad(tensor, "its length \"", Shown(entry.value()), "\" is not a whole number from 0");
    } else if (key != "checksum" && key != "basepath") {
      return Bad(tensor, "external_data has a key \"", Shown(key), "\", which is not known");
    }
  }
  if (place.location.empty()) return Bad(tensor, "external_data names no file");
  return place;
}

class Loader {
 public:
  explicit Loader(std::string folder) : folder_(std::move(folder)) {}

  absl::Status Load(Tensor* tensor) {
    if (tensor->data_location() != Tensor::EXTERNAL) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(*tensor));
    CAIRN_ASSIGN_OR_RETURN(const uint64_t size, OnnxTensorBytes(*tensor));
    if (place.length >= 0 && static_cast<uint64_t>(place.length) != size) {
      return Bad(*tensor, "shape ", ToString(Shape(tensor->dims().begin(), tensor->dims().end())), " needs ", size,
                 " bytes, external_data says ", place.length);
    }
    CAIRN_ASSIGN_OR_RETURN(File* const file, Open(*tensor, place.location));
    if (place.offset > file->size || size > file->size - place.offset) {
      return Bad(*tensor, "bytes ", place.offset, " to ", place.offset, " + ", size, " of \"", Shown(place.location),
                 "\", which has ", file->size);
    }
    file->taken += size;
    taken_ += size;
    if (file->taken > file->size) {
      return Bad(*tensor, "more is taken of \"", Shown(place.location), "\" than it has: tensors share its bytes");
    }
    if (taken_ > kOnnxExternalBytesMax) {
      return Bad(*tensor, "the model's tensors have more than ", kOnnxExternalBytesMax, " bytes in other files");
    }
    std::string bytes(size, '\0');
    for (uint64_t at = 0; at < size;) {
      const ssize_t n =
          ::pread(file->descriptor.get(), bytes.data() + at, size - at, static_cast<off_t>(place.offset + at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FileError(place.location, "cannot be read");
      if (n == 0) return Bad(*tensor, "\"", Shown(place.location), "\" was cut while it was read");
      at += static_cast<uint64_t>(n);
    }
    tensor->clear_external_data();
    tensor->clear_data_location();
    tensor->set_raw_data(std::move(bytes));
    return absl::OkStatus();
  }

 private:
  struct File {
    FileDescriptor descriptor;
    uint64_t size = 0, taken = 0;
  };

  // Opens folder by folder, so that no symbolic link can lead outside.
  absl::StatusOr<File*> Open(const Tensor& tensor, const std::string& location) {
    if (const auto it = files_.find(location); it != files_.end()) return &it->second;
    if (files_.size() >= kOnnxExternalFilesMax)
      return Bad(tensor, "more than ", kOnnxExternalFilesMax, " files of weights");
    const std::vector<std::string> parts = absl::StrSplit(location, '/', absl::SkipEmpty());
    const bool inside = !absl::StartsWith(location, "/") && !parts.empty() && location.find('\\') == location.npos &&
                        location.find('\0') == location.npos &&
                        std::find(parts.begin(), parts.end(), "..") == parts.end();
    if (!inside) return Bad(tensor, "\"", Shown(location), "\" is not a file below the model's folder; put it there");
    FileDescriptor at = OpenPath(folder_.empty() ? "." : folder_, O_RDONLY | O_DIRECTORY);
    if (at.get() < 0) return FileError(folder_, "cannot be opened");
    for (size_t i = 0; i < parts.size(); ++i) {
      const int kind = i + 1 < parts.size() ? O_DIRECTORY : O_NONBLOCK;
      FileDescriptor next(::openat(at.get(), parts[i].c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind));
      if (next.get() < 0 && errno == ELOOP)
        return Bad(tensor, "\"", Shown(location), "\" is a symbolic link, which is not followed; put the file there");
      if (next.get() < 0) {
        const int error = errno;
        return Annotate(FileError(Shown(location), "its numbers cannot be opened, below the model's folder", error),
                        absl::StrCat("tensor \"", Shown(tensor.name()), "\""));
      }
      at = std::move(next);
    }
    struct stat found;
    if (::fstat(at.get(), &found) != 0 || !S_ISREG(found.st_mode))
      return Bad(tensor, "\"", Shown(location), "\" is not a file");
    File& file = files_[location];
    file.descriptor = std::move(at);
    file.size = static_cast<uint64_t>(found.st_size);
    return &file;
  }

  const std::string folder_;
  std::map<std::string, File> files_;
  uint64_t taken_ = 0;
};

}  // namespace

absl::Status LoadOnnxExternalData(const std::string& folder, onnx::ModelProto* model) {
  Loader loader(folder);
  for (Tensor& tensor : *model->mutable_graph()->mutable_initializer()) {
    CAIRN_RETURN_IF_ERROR(loader.Load(&tensor));
  }
  for (onnx::NodeProto& node : *model->mutable_graph()->mutable_node()) {
    if (node.op_type() != "Constant") continue;
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) CAIRN_RETURN_IF_ERROR(loader.Load(attribute.mutable_t()));
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
