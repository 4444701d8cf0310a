#include "worker/checkpoint/writer_mark.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

using nlohmann::ordered_json;

constexpr char kPrefix[] = "writing-", kSuffix[] = ".json";
constexpr char kFormat[] = "cairn-writing";

std::string TextOf(const ordered_json& json, const char* name) {
  const auto it = json.find(name);
  return it == json.end() || !it->is_string() ? "" : it->get<std::string>();
}

bool Has(const ordered_json& json, const char* name, uint64_t value) {
  const auto it = json.find(name);
  return it != json.end() && it->is_number_unsigned() && it->get<uint64_t>() == value;
}

}  // namespace

std::string NewNonce() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

std::string MarkName(absl::string_view nonce) { return absl::StrCat(kPrefix, nonce, kSuffix); }

std::string NonceOfMark(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kPrefix) || !absl::ConsumeSuffix(&name, kSuffix)) return "";
  return IsNonce(name) ? std::string(name) : "";
}

std::string EncodeMark(const CheckpointOwner& owner) {
  ordered_json json;
  json["format"] = kFormat;
  json["job"] = owner.name;
  json["job_id"] = owner.job_id;
  json["submitted_unix_ms"] = static_cast<uint64_t>(owner.submitted_unix_ms);
  json["backup_dir"] = owner.backup_dir;
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

bool IsMarkOf(const CheckpointOwner& owner, absl::string_view text) {
  const ordered_json json = ordered_json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || TextOf(json, "format") != kFormat) return false;
  if (Has(json, "job_id", owner.job_id) &&
      Has(json, "submitted_unix_ms", static_cast<uint64_t>(owner.submitted_unix_ms))) {
    return true;
  }
  return !owner.backup_dir.empty() && TextOf(json, "job") == owner.name &&
         TextOf(json, "backup_dir") == owner.backup_dir;
}

}  // namespace cairn
