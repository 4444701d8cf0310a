#include "tests/fuzz/alter.h"

#include <google/protobuf/descriptor.h>

#include <bit>
#include <memory>

namespace cairn {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kListMax = 64;  // elements that doubling may lead to
constexpr int kAppend = -1, kSingle = -2;

double Real(ByteSource& in) {
  const uint8_t b = in.Byte();
  if (b < 0xf0) return (b - 64) / 8.0;
  return std::bit_cast<double>(in.Number(8));
}

std::string Text(ByteSource& in) {
  const uint8_t b = in.Byte();
  // Always UTF-8, for protobuf lets nothing else through. Characters have two bytes, so that a cut may fall into one.
  std::string text = b % 2 == 0 ? "" : "x";
  if (b < 0xf0) {
    for (char c : in.Bytes(b % 16)) text += c >= 0 ? std::string(1, c) : std::string("\u00e9");
  } else {
    for (size_t n = size_t{b - 0xefu} * 300; n > 0; --n) text += "\u00e9";
  }
  return text;
}

void PutScalar(ByteSource& in, Message* m, const FieldDescriptor* f, int index) {
  const Reflection* r = m->GetReflection();
#define CAIRN_FUZZ_PUT(Kind, value)                     \
  {                                                     \
    const auto v = value;                               \
    if (index == kSingle) return r->Set##Kind(m, f, v); \
    if (index == kAppend) return r->Add##Kind(m, f, v); \
    return r->SetRepeated##Kind(m, f, index, v);        \
  }
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: CAIRN_FUZZ_PUT(Int32, static_cast<int32_t>(in.Edge()))
    case FieldDescriptor::CPPTYPE_INT64: CAIRN_FUZZ_PUT(Int64, static_cast<int64_t>(in.Edge()))
    case FieldDescriptor::CPPTYPE_UINT32: CAIRN_FUZZ_PUT(UInt32, static_cast<uint32_t>(in.Edge()))
    case FieldDescriptor::CPPTYPE_UINT64: CAIRN_FUZZ_PUT(UInt64, in.Edge())
    case FieldDescriptor::CPPTYPE_FLOAT: CAIRN_FUZZ_PUT(Float, static_cast<float>(Real(in)))
    case FieldDescriptor::CPPTYPE_DOUBLE: CAIRN_FUZZ_PUT(Double, Real(in))
    case FieldDescriptor::CPPTYPE_BOOL: CAIRN_FUZZ_PUT(Bool, in.Below(2) == 1)
    case FieldDescriptor::CPPTYPE_ENUM: CAIRN_FUZZ_PUT(EnumValue, static_cast<int>(in.Edge()))
    case FieldDescriptor::CPPTYPE_STRING: CAIRN_FUZZ_PUT(String, Text(in))
    case FieldDescriptor::CPPTYPE_MESSAGE: return;
  }
#undef CAIRN_FUZZ_PUT
}

void AlterElement(ByteSource& in, Message* m, const FieldDescriptor* f, int index) {
  const Reflection* r = m->GetReflection();
  if (f->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return PutScalar(in, m, f, index);
  Alter(in, index == kAppend ? r->AddMessage(m, f) : r->MutableRepeatedMessage(m, f, index));
}

void DoubleLast(Message* m, const FieldDescriptor* f, ByteSource& in) {
  const Reflection* r = m->GetReflection();
  const int size = r->FieldSize(*m, f);
  if (f->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return PutScalar(in, m, f, kAppend);
  const std::unique_ptr<Message> copy(r->GetRepeatedMessage(*m, f, size - 1).New());
  copy->CopyFrom(r->GetRepeatedMessage(*m, f, size - 1));
  r->AddMessage(m, f)->CopyFrom(*copy);
}

void AlterList(ByteSource& in, Message* m, const FieldDescriptor* f) {
  const Reflection* r = m->GetReflection();
  const int size = r->FieldSize(*m, f);
  const uint8_t action = in.Byte();
  if (action == 0) return r->ClearField(m, f);
  if (size == 0 || (action == 3 && size < kListMax)) return AlterElement(in, m, f, kAppend);
  if (action == 1) return r->RemoveLast(m, f);
  if (action == 2 && size < kListMax) return DoubleLast(m, f, in);
  AlterElement(in, m, f, action % size);
}

}  // namespace

void Alter(ByteSource& in, Message* message) {
  const auto* type = message->GetDescriptor();
  if (type->field_count() == 0 || in.empty()) return;
  const FieldDescriptor* field = type->field(static_cast<int>(in.Below(type->field_count())));
  if (field->is_repeated()) return AlterList(in, message, field);
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return PutScalar(in, message, field, kSingle);
  if (in.Byte() == 0) return message->GetReflection()->ClearField(message, field);
  Alter(in, message->GetReflection()->MutableMessage(message, field));
}

void AlterSome(ByteSource& in, Message* message) {
  for (size_t n = in.Below(8); n > 0; --n) Alter(in, message);
}

}  // namespace cairn
