// Files of the value log with any bytes, and places that name anything; then appends and releases beside a model.
//
//   input := Block(file 1) another:u8 n:u8 place^n op*
#include <map>

#include "common/base/check.h"
#include "common/storage/value_log.h"
#include "tests/fuzz/input.h"

namespace cairn {
namespace {

ValueLog::Place AnyPlace(ByteSource& in) { return {in.Edge(), in.Edge(), in.Edge()}; }

void Check(ByteSource in) {
  static const FuzzFolder folder;
  std::filesystem::remove_all(folder / "log");
  std::filesystem::create_directory(folder / "log");
  const std::string_view file = in.Block();
  if (in.Below(4) == 0) folder.Write("log/" + std::to_string(in.Edge()) + ".values", "x");
  folder.Write("log/1.values", file);
  folder.Write("log/2.values", "");

  const auto log = ValueLog::Open(folder / "log");
  if (!log.ok()) return;
  std::map<std::string, ValueLog::Place> kept;
  for (size_t n = in.Below(4); n > 0; --n) {
    const ValueLog::Place place = AnyPlace(in);
    std::string out;
    const absl::Status status = (*log)->Read(place, &out);
    if (!status.ok()) continue;
    CAIRN_CHECK(out.size() == place.size, "not as long as asked for");
    if (place.segment == 1) CAIRN_CHECK(out == file.substr(place.offset, place.size), "other bytes");
    if ((*log)->Retain(place).ok()) kept.emplace(std::move(out), place);
  }
  (*log)->Sweep();
  while (!in.empty()) {
    if (in.Below(3) == 0 && !kept.empty()) {
      (*log)->Release(kept.begin()->second);
      kept.erase(kept.begin());
      continue;
    }
    std::string body(in.Bytes(in.Byte() % 64 + 1));
    if (body.empty() || kept.contains(body)) continue;
    const auto urgency = in.Below(2) == 0 ? ValueLog::Urgency::kNow : ValueLog::Urgency::kLater;
    const auto place = (*log)->Append(body.data(), body.size(), urgency);
    MustBeOk(place.status());
    kept.emplace(std::move(body), *place);
  }
  for (const auto& [body, place] : kept) {
    std::string out;
    CAIRN_CHECK((*log)->Read(place, &out).ok() && out == body, "a body was lost");
  }
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
