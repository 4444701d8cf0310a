// Alters protobuf messages of which only the bytes are known (ONNX's have no reflection).
#pragma once

#include <google/protobuf/io/coded_stream.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/input.h"

namespace cairn {

struct WireField {
  uint32_t tag = 0;
  std::string value;  // a varint, 4 or 8 bytes, or what stands behind a length
};

inline std::optional<std::vector<WireField>> ReadWire(const std::string& bytes) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  std::vector<WireField> fields;
  while (const uint32_t tag = in.ReadTag()) {
    WireField& field = fields.emplace_back(WireField{tag, {}});
    uint64_t number = 0;
    uint32_t size = 0;
    bool ok = false;
    switch (tag & 7) {
      case 0:
        ok = in.ReadVarint64(&number);
        field.value = ByteSink().Number(number, 8).bytes();
        break;
      case 1: ok = in.ReadString(&field.value, 8); break;
      case 2: ok = in.ReadVarint32(&size) && in.ReadString(&field.value, static_cast<int>(size)); break;
      case 5: ok = in.ReadString(&field.value, 4); break;
    }
    if (!ok) return std::nullopt;
  }
  if (in.CurrentPosition() != static_cast<int>(bytes.size())) return std::nullopt;
  return fields;
}

inline std::string Varint(uint64_t v) {
  ByteSink out;
  for (; v >= 0x80; v >>= 7) out.Byte(static_cast<uint8_t>(v | 0x80));
  return out.Byte(static_cast<uint8_t>(v)).bytes();
}

inline std::string WriteWire(const std::vector<WireField>& fields) {
  std::string out;
  for (const WireField& f : fields) {
    out += Varint(f.tag);
    if ((f.tag & 7) == 0) {
      out += Varint(ByteSource(reinterpret_cast<const uint8_t*>(f.value.data()), f.value.size()).Number(8));
      continue;
    }
    if ((f.tag & 7) == 2) out += Varint(f.value.size());
    out += f.value;
  }
  return out;
}

// alteration := field:u16 (modulo their number) how:u8
//   how      := 0 it goes | 1 twice | 2 the value of field:u16 | 3 other bytes | else inside it, or another number
inline std::string AlterWire(ByteSource& in, const std::string& bytes) {
  std::optional<std::vector<WireField>> fields = ReadWire(bytes);
  if (!fields || fields->empty() || in.empty()) return std::string(in.Bytes(in.Below(16)));
  const size_t which = in.Number(2) % fields->size();
  WireField& field = (*fields)[which];
  switch (in.Below(16)) {
    case 0: fields->erase(fields->begin() + static_cast<ptrdiff_t>(which)); break;
    case 1: fields->push_back(WireField(field)); break;
    case 2: {
      const WireField& other = (*fields)[in.Number(2) % fields->size()];
      if ((other.tag & 7) == (field.tag & 7)) field.value = std::string(other.value);
      break;
    }
    case 3:
      if ((field.tag & 7) == 2) field.value = std::string(in.Bytes(in.Byte()));
      break;
    default:
      field.value = (field.tag & 7) == 2 ? AlterWire(in, field.value)
                                         : ByteSink().Number(in.Edge(), (field.tag & 7) == 5 ? 4 : 8).bytes();
  }
  return WriteWire(*fields);
}

}  // namespace cairn
