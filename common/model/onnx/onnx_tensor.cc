#include "common/model/onnx/onnx_tensor.h"

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/tensor/dtype.h"

namespace cairn {
namespace {

using Type = onnx::TensorProto;

template <typename... Args>
absl::Status Bad(const onnx::TensorProto& tensor, const Args&... args) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", absl::CEscape(tensor.name().substr(0, 128)), "\": ", args...));
}

// Bytes of a number in raw_data; 0: the type is not supported.
size_t SizeOf(int type) {
  switch (type) {
    case Type::FLOAT:
    case Type::INT32: return 4;
    case Type::DOUBLE:
    case Type::INT64: return 8;
    case Type::FLOAT16:
    case Type::BFLOAT16: return 2;
    case Type::BOOL:
    case Type::UINT8:
    case Type::INT8: return 1;
    default: return 0;
  }
}

// The number of elements in the type's own field, which is used if raw_data is empty.
int TypedCount(const onnx::TensorProto& tensor) {
  switch (tensor.data_type()) {
    case Type::FLOAT: return tensor.float_data_size();
    case Type::DOUBLE: return tensor.double_data_size();
    case Type::INT64: return tensor.int64_data_size();
    default: return tensor.int32_data_size();
  }
}

template <typename Number, typename To>
std::vector<To> FromRaw(const std::string& raw) {
  std::vector<To> numbers(raw.size() / sizeof(Number));
  for (size_t i = 0; i < numbers.size(); ++i) {
    Number number;
    std::memcpy(&number, raw.data() + i * sizeof(Number), sizeof(Number));
    numbers[i] = static_cast<To>(number);  // NOLINT(bugprone-signed-char-misuse): an int8 is a number, not a character
  }
  return numbers;
}

// Converts 16-bit floats.
std::vector<float> FromHalves(const std::vector<uint16_t>& halves, v1::DataType dtype) {
  std::vector<float> numbers(halves.size());
  const auto* bytes = reinterpret_cast<const uint8_t*>(halves.data());
  ToFloat({bytes, halves.size() * sizeof(uint16_t)}, dtype, absl::MakeSpan(numbers));
  return numbers;
}

}  // namespace

absl::StatusOr<uint64_t> OnnxTensorBytes(const onnx::TensorProto& tensor) {
  const size_t size = SizeOf(tensor.data_type());
  if (size == 0) {
    const auto type = static_cast<Type::DataType>(tensor.data_type());
    return Bad(
        tensor, "its numbers are of type ",
        Type::DataType_IsValid(tensor.data_type()) ? Type::DataType_Name(type) : absl::StrCat(tensor.data_type()),
        "; floats, doubles, 16-bit floats and whole numbers of 8, 32 and 64 bits are read");
  }
  int64_t count = 1;
  for (const int64_t dim : tensor.dims()) {
    if (dim < 0) return Bad(tensor, "its dimension ", dim, " is negative");
    if (__builtin_mul_overflow(count, dim, &count) || count > kParametersMax) {
      return Bad(tensor, "it has more than ", kParametersMax, " numbers");
    }
  }
  return static_cast<uint64_t>(count) * size;
}

absl::Status CheckOnnxTensor(const onnx::TensorProto& tensor) {
  if (tensor.data_location() == Type::EXTERNAL || tensor.external_data_size() > 0) {
    return Bad(tensor, "its numbers are in another file; save the model with its weights inside");
  }
  if (tensor.has_segment()) return Bad(tensor, "it is a segment of a tensor; save it whole");
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, OnnxTensorBytes(tensor));
  const int64_t count = static_cast<int64_t>(bytes / SizeOf(tensor.data_type()));
  const Shape dims(tensor.dims().begin(), tensor.dims().end());
  if (tensor.has_raw_data()) {
    if (tensor.raw_data().size() != bytes) {
      return Bad(tensor, "shape ", ToString(dims), " needs ", bytes, " bytes, the file has ", tensor.raw_data().size());
    }
  } else if (TypedCount(tensor) != count) {
    return Bad(tensor, "shape ", ToString(dims), " needs ", count, " numbers, the file has ", TypedCount(tensor));
  }
  return absl::OkStatus();
}

OnnxTensor ReadOnnxTensor(const onnx::TensorProto& tensor) {
  OnnxTensor read;
  read.dims.assign(tensor.dims().begin(), tensor.dims().end());
  const bool raw = tensor.has_raw_data();
  const std::string& bytes = tensor.raw_data();
  const auto& narrow = tensor.int32_data();
  const auto halves = [&] {
    return raw ? FromRaw<uint16_t, uint16_t>(bytes) : std::vector<uint16_t>(narrow.begin(), narrow.end());
  };
  switch (tensor.data_type()) {
    case Type::FLOAT:
      read.floats = raw ? FromRaw<float, float>(bytes)
                        : std::vector<float>(tensor.float_data().begin(), tensor.float_data().end());
      return read;
    case Type::DOUBLE:
      read.floats = raw ? FromRaw<double, float>(bytes)
                        : std::vector<float>(tensor.double_data().begin(), tensor.double_data().end());
      return read;
    case Type::FLOAT16: read.floats = FromHalves(halves(), v1::FLOAT16); return read;
    case Type::BFLOAT16: read.floats = FromHalves(halves(), v1::BFLOAT16); return read;
    case Type::INT64:
      read.ints = raw ? FromRaw<int64_t, int64_t>(bytes)
                      : std::vector<int64_t>(tensor.int64_data().begin(), tensor.int64_data().end());
      break;
    case Type::INT32:
      read.ints = raw ? FromRaw<int32_t, int64_t>(bytes) : std::vector<int64_t>(narrow.begin(), narrow.end());
      break;
    case Type::INT8:
      read.ints = raw ? FromRaw<int8_t, int64_t>(bytes) : std::vector<int64_t>(narrow.begin(), narrow.end());
      break;
    default:
      read.ints = raw ? FromRaw<uint8_t, int64_t>(bytes) : std::vector<int64_t>(narrow.begin(), narrow.end());
      break;
  }
  read.whole = true;
  return read;
}

}  // namespace cairn
