#include "common/rpc/utf8_message.h"

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "common/base/text.h"

namespace cairn {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void MakeTextUtf8(Message* m, const FieldDescriptor* f) {
  const Reflection* r = m->GetReflection();
  if (!f->is_repeated()) {
    if (const std::string text = r->GetString(*m, f); !IsUtf8(text)) r->SetString(m, f, ToUtf8(text));
    return;
  }
  for (int i = 0; i < r->FieldSize(*m, f); ++i) {
    if (const std::string text = r->GetRepeatedString(*m, f, i); !IsUtf8(text))
      r->SetRepeatedString(m, f, i, ToUtf8(text));
  }
}

}  // namespace

void MakeUtf8(Message* message) {
  const Reflection* r = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;  // the fields that are set
  r->ListFields(*message, &fields);
  for (const FieldDescriptor* f : fields) {
    if (f->type() == FieldDescriptor::TYPE_STRING) {
      MakeTextUtf8(message, f);
    } else if (f->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !f->is_repeated()) {
      MakeUtf8(r->MutableMessage(message, f));
    } else if (f->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      for (int i = 0; i < r->FieldSize(*message, f); ++i) MakeUtf8(r->MutableRepeatedMessage(message, f, i));
    }
  }
}

}  // namespace cairn
