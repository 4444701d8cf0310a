#include "common/data/tf_example.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

absl::Status Malformed(const char* what) {
  return absl::DataLossError(absl::StrFormat("not a tf.train.Example: %s", what));
}

// Reads the fields of one message sequentially.
class Fields {
 public:
  Fields(ByteWindow& window, uint64_t begin, uint64_t end) : window_(window), at_(begin), end_(end) {}

  struct Field {
    uint32_t number = 0;
    uint32_t type = 0;
    uint64_t begin = 0, end = 0;  // range of the value's bytes; for a varint, of the varint itself
  };

  bool done() const { return at_ == end_; }

  absl::Status Next(Field* field) {
    uint64_t tag = 0;
    CAIRN_RETURN_IF_ERROR(Varint(&tag));
    field->number = static_cast<uint32_t>(tag >> 3);
    field->type = static_cast<uint32_t>(tag & 7);
    if (field->number == 0 || tag > UINT32_MAX) return Malformed("a field without a number");
    uint64_t length = 0;
    field->begin = at_;
    switch (field->type) {
      case kVarint:
        CAIRN_RETURN_IF_ERROR(Varint(&length));
        field->end = at_;
        return absl::OkStatus();
      case kFixed64: length = 8; break;
      case kFixed32: length = 4; break;
      case kLengthDelimited: CAIRN_RETURN_IF_ERROR(Varint(&length)); break;
      default: return Malformed("a field of an unknown type");
    }
    if (length > end_ - at_) return Malformed("a field is longer than the message around it");
    field->begin = at_;
    at_ += length;
    field->end = at_;
    return absl::OkStatus();
  }

  absl::Status Varint(uint64_t* value) {
    const size_t room = static_cast<size_t>(std::min<uint64_t>(kVarintBytesMax, end_ - at_));
    CAIRN_ASSIGN_OR_RETURN(const absl::string_view bytes, window_.At(at_, room));
    CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(room));
    if (in.ReadVarint64(value)) {
      at_ += static_cast<uint64_t>(in.CurrentPosition());
      return absl::OkStatus();
    }
    return Malformed(room == kVarintBytesMax ? "a number of more than ten bytes" : "it ends within a number");
  }

 private:
  ByteWindow& window_;
  uint64_t at_;
  const uint64_t end_;
};

absl::Status ReadFeature(ByteWindow& window, uint64_t begin, uint64_t end, FeaturePlace* place) {
  Fields fields(window, begin, end);
  Fields::Field field;
  while (!fields.done()) {
    CAIRN_RETURN_IF_ERROR(fields.Next(&field));
    if (field.number > 3) continue;
    if (field.type != kLengthDelimited) return Malformed("a feature's list is not a message");
    constexpr FeatureKind kKinds[] = {FeatureKind::kBytes, FeatureKind::kFloats, FeatureKind::kInts};
    *place = {kKinds[field.number - 1], field.begin, field.end};
  }
  return absl::OkStatus();
}

absl::Status ReadEntry(ByteWindow& window, uint64_t begin, uint64_t end,
                       absl::FunctionRef<absl::Status(absl::string_view, const FeaturePlace&)> visit) {
  Fields fields(window, begin, end);
  Fields::Field field, name;
  FeaturePlace place;
  while (!fields.done()) {
    CAIRN_RETURN_IF_ERROR(fields.Next(&field));
    if (field.number > 2) continue;
    if (field.type != kLengthDelimited) return Malformed("a feature is not a message");
    if (field.number == 1) name = field;
    if (field.number == 2) CAIRN_RETURN_IF_ERROR(ReadFeature(window, field.begin, field.end, &place));
  }
  const uint64_t size = name.end - name.begin;
  if (size > kTfFeatureNameBytesMax) return Malformed("a feature's name of more than 4096 bytes");
  CAIRN_ASSIGN_OR_RETURN(const absl::string_view text, window.At(name.begin, static_cast<size_t>(size)));
  return visit(text, place);
}

float ToFloat(const char* bytes) {
  uint32_t bits = 0;
  CodedInputStream::ReadLittleEndian32FromArray(reinterpret_cast<const uint8_t*>(bytes), &bits);
  return std::bit_cast<float>(bits);
}

// Returns false if `take` returned false.
absl::StatusOr<bool> PackedFloats(ByteWindow& window, uint64_t begin, uint64_t end,
                                  absl::FunctionRef<bool(double)> take) {
  if ((end - begin) % 4 != 0) return Malformed("a float_list that is not a whole number of floats");
  while (begin < end) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(end - begin, ByteWindow::kBytes));
    CAIRN_ASSIGN_OR_RETURN(const absl::string_view bytes, window.At(begin, part));
    for (size_t i = 0; i < part; i += 4) {
      if (!take(ToFloat(bytes.data() + i))) return false;
    }
    begin += part;
  }
  return true;
}

absl::StatusOr<bool> PackedInts(ByteWindow& window, uint64_t begin, uint64_t end,
                                absl::FunctionRef<bool(double)> take) {
  Fields numbers(window, begin, end);
  while (!numbers.done()) {
    uint64_t value = 0;
    CAIRN_RETURN_IF_ERROR(numbers.Varint(&value));
    if (!take(static_cast<double>(static_cast<int64_t>(value)))) return false;
  }
  return true;
}

void AppendField(uint32_t number, absl::string_view bytes, std::string* out) {
  StringOutputStream stream(out);
  CodedOutputStream coded(&stream);
  coded.WriteTag(number << 3 | kLengthDelimited);
  coded.WriteVarint64(bytes.size());
  coded.WriteRaw(bytes.data(), static_cast<int>(bytes.size()));
}

std::string PackFloats(const std::vector<float>& numbers) {
  std::string packed;
  StringOutputStream stream(&packed);
  CodedOutputStream coded(&stream);
  for (const float number : numbers) coded.WriteLittleEndian32(std::bit_cast<uint32_t>(number));
  coded.Trim();
  return packed;
}

std::string PackInts(const std::vector<int64_t>& numbers) {
  std::string packed;
  StringOutputStream stream(&packed);
  CodedOutputStream coded(&stream);
  for (const int64_t number : numbers) coded.WriteVarint64(static_cast<uint64_t>(number));
  coded.Trim();
  return packed;
}

std::string WriteFeature(const FeatureValue& value) {
  std::string list, feature;
  switch (value.kind) {
    case FeatureKind::kBytes:
      AppendField(1, value.bytes, &list);
      AppendField(1, list, &feature);
      break;
    case FeatureKind::kFloats:
      AppendField(1, PackFloats(value.floats), &list);
      AppendField(2, list, &feature);
      break;
    case FeatureKind::kInts:
      AppendField(1, PackInts(value.ints), &list);
      AppendField(3, list, &feature);
      break;
    case FeatureKind::kEmpty: break;
  }
  return feature;
}

}  // namespace

const char* ToText(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::kBytes: return "bytes_list";
    case FeatureKind::kFloats: return "float_list";
    case FeatureKind::kInts: return "int64_list";
    case FeatureKind::kEmpty: break;
  }
  return "empty";
}

absl::Status WalkFeatures(ByteWindow& window, uint64_t begin, uint64_t end,
                          absl::FunctionRef<absl::Status(absl::string_view, const FeaturePlace&)> visit) {
  Fields example(window, begin, end);
  Fields::Field features, entry;
  while (!example.done()) {
    CAIRN_RETURN_IF_ERROR(example.Next(&features));
    if (features.number != 1) continue;
    if (features.type != kLengthDelimited) return Malformed("its features are not a message");
    Fields entries(window, features.begin, features.end);
    while (!entries.done()) {
      CAIRN_RETURN_IF_ERROR(entries.Next(&entry));
      if (entry.number != 1) continue;
      if (entry.type != kLengthDelimited) return Malformed("a feature is not a message");
      CAIRN_RETURN_IF_ERROR(ReadEntry(window, entry.begin, entry.end, visit));
    }
  }
  return absl::OkStatus();
}

absl::Status WalkNumbers(ByteWindow& window, const FeaturePlace& place, absl::FunctionRef<bool(double)> take) {
  const bool ints = place.kind == FeatureKind::kInts;
  Fields list(window, place.begin, place.end);
  Fields::Field field;
  while (!list.done()) {
    CAIRN_RETURN_IF_ERROR(list.Next(&field));
    if (field.number != 1) continue;
    absl::StatusOr<bool> more = true;
    if (field.type == kLengthDelimited) {
      more =
          ints ? PackedInts(window, field.begin, field.end, take) : PackedFloats(window, field.begin, field.end, take);
    } else if (ints && field.type == kVarint) {
      more = PackedInts(window, field.begin, field.end, take);
    } else if (!ints && field.type == kFixed32) {
      more = PackedFloats(window, field.begin, field.end, take);
    } else {
      return Malformed("a list's value of another type than the list's");
    }
    if (!more.ok() || !*more) return more.status();
  }
  return absl::OkStatus();
}

absl::Status WalkBytes(ByteWindow& window, const FeaturePlace& place,
                       absl::FunctionRef<bool(uint64_t, uint64_t)> take) {
  Fields list(window, place.begin, place.end);
  Fields::Field field;
  while (!list.done()) {
    CAIRN_RETURN_IF_ERROR(list.Next(&field));
    if (field.number != 1) continue;
    if (field.type != kLengthDelimited) return Malformed("a bytes_list's value is not bytes");
    if (!take(field.begin, field.end)) break;
  }
  return absl::OkStatus();
}

std::string WriteExample(std::vector<FeatureValue> features) {
  std::sort(features.begin(), features.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::string all, example;
  for (const FeatureValue& feature : features) {
    std::string entry;
    AppendField(1, feature.name, &entry);
    AppendField(2, WriteFeature(feature), &entry);
    AppendField(1, entry, &all);
  }
  AppendField(1, all, &example);
  return example;
}

}  // namespace cairn
