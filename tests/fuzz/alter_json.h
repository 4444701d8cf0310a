// Alters JSON as the input's bytes say: what another program or an edited file might contain.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/fuzz/input.h"

namespace cairn {

// A place in the value: for each step:u8 that is not 0 modulo 8 a child, number child:u16 modulo their count.
inline nlohmann::json* PlaceIn(ByteSource& in, nlohmann::json* value) {
  while (value->is_structured() && !value->empty() && in.Below(8) != 0) {
    auto child = value->begin();
    std::advance(child, static_cast<ptrdiff_t>(in.Number(2) % value->size()));
    value = &*child;
  }
  return value;
}

// alteration := place how:u8 arguments
inline void AlterJson(ByteSource& in, nlohmann::json* root) {
  nlohmann::json* const value = PlaceIn(in, root);
  switch (in.Below(12)) {
    case 0: *value = nullptr; return;
    case 1: *value = in.Below(2) == 1; return;
    case 2: *value = static_cast<int64_t>(in.Edge()); return;
    case 3: *value = -static_cast<double>(in.Edge()); return;
    case 4: *value = in.Edge(); return;
    case 5: *value = std::string(in.Bytes(in.Byte())); return;
    case 6: *value = nlohmann::json::array(); return;
    case 7: *value = nlohmann::json::object(); return;
    case 8: *value = nlohmann::json::array({*value}); return;
    case 9: {  // what stands elsewhere
      nlohmann::json copy = *PlaceIn(in, root);
      *value = std::move(copy);
      return;
    }
    case 10:  // an element less
      if (value->is_structured() && !value->empty())
        value->erase(std::next(value->begin(), static_cast<ptrdiff_t>(in.Byte() % value->size())));
      return;
    case 11:  // an element more
      if (value->is_array()) value->push_back(value->empty() ? nlohmann::json() : nlohmann::json(value->back()));
      if (value->is_object()) (*value)[std::string(in.Bytes(in.Below(16)))] = static_cast<int64_t>(in.Edge());
      return;
  }
}

// The text, with n:u8 modulo 8 alterations where it is JSON.
inline std::string AlteredJson(ByteSource& in, std::string_view text) {
  const size_t count = in.Below(8);
  nlohmann::json json = count == 0
                            ? nlohmann::json(nlohmann::json::value_t::discarded)
                            : nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return std::string(text);
  for (size_t i = 0; i < count; ++i) AlterJson(in, &json);
  return json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

}  // namespace cairn
