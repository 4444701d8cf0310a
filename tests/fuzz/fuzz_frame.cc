// Bytes of an ExchangeFrame into the codec: no crash; the cuts between slices change nothing; where protobuf's own
// parser takes the message too, both read the same fields.
#include <google/protobuf/stubs/logging.h>

#include "absl/strings/str_cat.h"
#include "cairn/v1/parameter.pb.h"
#include "common/base/check.h"
#include "common/tensor/frame_codec.h"
#include "tests/fuzz/input.h"

namespace cairn {
namespace {

// The frame as one message, payload and all.
std::string Bytes(const DecodedFrame& decoded) {
  Frame frame = decoded.frame;
  std::string payload(decoded.payload_size, '\0');
  CopyPayload(decoded, absl::MakeSpan(reinterpret_cast<uint8_t*>(payload.data()), payload.size()));
  frame.payload = Buffer::CopyOf(payload.data(), payload.size());
  return absl::StrCat(EncodeFrameHeader(frame), payload);
}

// Without what the codec may omit: unknown fields, a status without a code, and the end of a long message.
std::string Plain(v1::ExchangeFrame message) {
  message.DiscardUnknownFields();
  message.clear_status_message();
  return message.SerializeAsString();
}

void Check(ByteSource in) {
  const size_t first = in.Byte(), second = in.Byte();
  const std::string_view bytes = in.Rest();
  const ByteSpan whole(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const size_t a = std::min(first, whole.size()), b = std::min(a + second, whole.size());
  const ByteSpan pieces[] = {whole.subspan(0, a), whole.subspan(a, b - a), whole.subspan(b)};

  const absl::StatusOr<DecodedFrame> decoded = DecodeFrame({&whole, 1});
  const absl::StatusOr<DecodedFrame> cut = DecodeFrame(pieces);
  CAIRN_CHECK(decoded.status() == cut.status(), "slices change the verdict");
  v1::ExchangeFrame message;
  if (!decoded.ok()) return;
  const std::string again = Bytes(*decoded);
  CAIRN_CHECK(again == Bytes(*cut), "slices change the frame");
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  v1::ExchangeFrame reencoded;
  // Text that is not UTF-8 passes the codec if a character came in two slices; protobuf refuses to write it.
  if (!reencoded.ParseFromString(again)) return;
  CAIRN_CHECK(Plain(message) == Plain(reencoded), "codec and protobuf read different fields");
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);  // it tells of every text that is no UTF-8
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
