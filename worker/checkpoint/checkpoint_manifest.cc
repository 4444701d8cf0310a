#include "worker/checkpoint/checkpoint_manifest.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/digest.h"
#include "common/base/limits.h"
#include "common/formats/limits.h"
#include "common/model/limits.h"
#include "common/model/loss_scale.h"
#include "common/model/metric_sums.h"
#include "worker/limits.h"

namespace cairn {
namespace {

using nlohmann::ordered_json;

constexpr char kFormat[] = "cairn-checkpoint";
constexpr uint64_t kFormatVersion = 1;
constexpr size_t kNonceDigits = 16;
constexpr char kTensorsSuffix[] = ".safetensors";
constexpr char kChecksum[] = "xxh3_128";  // the hash of the text without this field

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::DataLossError(absl::StrCat("manifest.json: ", args...));
}

std::string TextOf(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

std::string Dump(const ordered_json& json) {
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// Serializes an object without kChecksum, with its checksum as the last field.
std::string Seal(ordered_json json) {
  const std::string text = Dump(json);
  Digest digest;
  digest.Add(text.data(), text.size());
  json[kChecksum] = digest.Hex();
  return Dump(json);
}

ordered_json ToJson(const CheckpointManifest& m) {
  ordered_json json;
  json["format"] = kFormat;
  json["format_version"] = kFormatVersion;
  json["library_version"] = m.library_version;
  json["job"] = m.spec.name();
  json["job_id"] = m.job_id;
  json["submitted_unix_ms"] = m.submitted_unix_ms;
  json["step"] = m.step;
  json["epoch"] = m.step / m.steps_per_epoch;
  json["step_in_epoch"] = m.step % m.steps_per_epoch;
  json["steps_per_epoch"] = m.steps_per_epoch;
  json["total_steps"] = m.total_steps;
  json["train_examples"] = m.train_examples;
  json["seed"] = m.spec.seed();
  json["batch_size"] = m.spec.batch_size();
  json["replicas"] = m.spec.replicas();
  json["synchronous"] = m.synchronous;
  json["written_unix_ms"] = m.written_unix_ms;
  if (!m.synchronous) json["replica_step"] = m.replica_step;
  if (m.loss_scale.scale() > 0) {
    ordered_json& scale = json["loss_scale"];
    scale["scale"] = static_cast<uint64_t>(m.loss_scale.scale());  // a power of two
    scale["finite_steps"] = m.loss_scale.finite_steps();
    scale["skipped"] = m.loss_scale.skipped();
  }
  for (const v1::EpochFigures& epoch : m.figures) json["figures"].push_back(TextOf(epoch));
  ordered_json& files = json["files"] = ordered_json::object();
  for (const auto& [name, file] : m.files) {
    if (!file.nonce.empty()) files[name]["name"] = TensorsFileName(name, file.nonce);
    files[name]["bytes"] = file.bytes;
    files[name]["xxh3_128"] = file.xxh3_128;
  }
  ordered_json& partitions = json["partitions"] = ordered_json::array();
  for (const CheckpointPartition& p : m.partitions) {
    ordered_json one;
    one["begin"] = p.begin;
    one["end"] = p.end;
    one["version"] = p.version;
    if (!m.synchronous) one["sequences"] = p.sequences;
    partitions.push_back(std::move(one));
  }
  json["job_spec"] = TextOf(m.spec);
  return json;
}

// ---- reading: each function reads the field `name` of `object` ----

absl::StatusOr<uint64_t> Count(const ordered_json& object, const char* name, uint64_t most = INT64_MAX) {
  const auto it = object.find(name);
  if (it == object.end() || !it->is_number_unsigned()) return Bad(name, " is missing or no count");
  if (it->get<uint64_t>() > most) return Bad(name, ": ", it->get<uint64_t>(), " is more than ", most);
  return it->get<uint64_t>();
}

absl::StatusOr<std::string> Text(const ordered_json& object, const char* name) {
  const auto it = object.find(name);
  if (it == object.end() || !it->is_string()) return Bad(name, " is missing or no text");
  return it->get<std::string>();
}

template <typename T>
absl::StatusOr<std::vector<T>> Counts(const ordered_json& object, const char* name, size_t size) {
  const auto it = object.find(name);
  if (it == object.end() || !it->is_array() || it->size() != size) {
    return Bad(name, " is missing or does not have ", size, " entries");
  }
  std::vector<T> out;
  for (const ordered_json& item : *it) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > INT64_MAX) return Bad(name, " holds no counts");
    out.push_back(static_cast<T>(item.get<uint64_t>()));
  }
  return out;
}

absl::Status ReadFiles(const ordered_json& json, CheckpointManifest& m) {
  const auto files = json.find("files");
  if (files == json.end() || !files->is_object()) return Bad("files is missing");
  for (const char* name : {kModelFile, kOptimizerFile}) {
    const auto it = files->find(name);
    if (it == files->end() || !it->is_object()) return Bad("files has no ", name);
    CAIRN_ASSIGN_OR_RETURN(m.files[name].bytes, Count(*it, "bytes"));
    CAIRN_ASSIGN_OR_RETURN(m.files[name].xxh3_128, Text(*it, "xxh3_128"));
    if (!it->contains("name")) continue;
    CAIRN_ASSIGN_OR_RETURN(const std::string stored, Text(*it, "name"));
    m.files[name].nonce = NonceOf(name, stored);
    if (m.files[name].nonce.empty()) return Bad("files: the name of ", name, " is none of Cairn's");
  }
  if (m.files[kModelFile].nonce == m.files[kOptimizerFile].nonce) return absl::OkStatus();
  return Bad("files: their names are of two attempts");
}

absl::Status ReadLossScale(const ordered_json& json, CheckpointManifest& m) {
  const auto scale = json.find("loss_scale");
  if (scale == json.end()) return absl::OkStatus();
  if (!scale->is_object()) return Bad("loss_scale is not an object");
  CAIRN_ASSIGN_OR_RETURN(const uint64_t of, Count(*scale, "scale", static_cast<uint64_t>(kLossScaleMax)));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t finite_steps, Count(*scale, "finite_steps", INT32_MAX));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t skipped, Count(*scale, "skipped"));
  if (of == 0) return Bad("loss_scale.scale is 0");
  m.loss_scale.set_scale(static_cast<float>(of));
  m.loss_scale.set_finite_steps(static_cast<uint32_t>(finite_steps));
  m.loss_scale.set_skipped(skipped);
  return absl::OkStatus();
}

// Numbers in the text are read back bit for bit, NaN and infinities included.
absl::Status ReadFigures(const ordered_json& json, CheckpointManifest& m) {
  const auto figures = json.find("figures");
  if (figures == json.end()) return absl::OkStatus();
  if (!figures->is_array() || figures->size() > static_cast<size_t>(OpenEpochsMax(0)))
    return Bad("figures is not an array, or too long");
  google::protobuf::TextFormat::Parser parser;
  parser.SetRecursionLimit(kTextDepthMax);
  parser.AllowUnknownField(true);
  for (const ordered_json& epoch : *figures) {
    if (!epoch.is_string() || !parser.ParseFromString(epoch.get<std::string>(), m.figures.Add()))
      return Bad("figures holds no EpochFigures");
  }
  if (const absl::Status status = CheckEpochList(m.figures, MetricSumCount(m.spec)); !status.ok())
    return Bad(status.message());
  return absl::OkStatus();
}

absl::Status ReadPartitions(const ordered_json& json, CheckpointManifest& m) {
  const auto partitions = json.find("partitions");
  if (partitions == json.end() || !partitions->is_array() || partitions->empty() ||
      partitions->size() > kPartitionsMax) {
    return Bad("partitions is missing, empty or too long");
  }
  for (const ordered_json& one : *partitions) {
    if (!one.is_object()) return Bad("partitions holds something else than partitions");
    CheckpointPartition& p = m.partitions.emplace_back();
    CAIRN_ASSIGN_OR_RETURN(p.begin, Count(one, "begin", kParametersMax));
    CAIRN_ASSIGN_OR_RETURN(p.end, Count(one, "end", kParametersMax));
    CAIRN_ASSIGN_OR_RETURN(p.version, Count(one, "version"));
    const uint64_t before = m.partitions.size() == 1 ? 0 : m.partitions[m.partitions.size() - 2].end;
    if (p.begin != before || p.end <= p.begin) return Bad("partition [", p.begin, ",", p.end, ") follows ", before);
    if (m.synchronous) {
      if (p.version != static_cast<uint64_t>(m.step)) return Bad("a partition is at version ", p.version);
      continue;
    }
    const size_t replicas = static_cast<size_t>(m.spec.replicas());
    CAIRN_ASSIGN_OR_RETURN(p.sequences, Counts<uint64_t>(one, "sequences", replicas));
    for (size_t r = 0; r < replicas; ++r) {
      if (p.sequences[r] < static_cast<uint64_t>(m.replica_step[r])) return Bad("sequences are below replica_step");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointManifest> Read(const ordered_json& json) {
  CheckpointManifest m;
  CAIRN_ASSIGN_OR_RETURN(m.library_version, Text(json, "library_version"));
  CAIRN_ASSIGN_OR_RETURN(m.job_id, Count(json, "job_id", UINT64_MAX));
  if (json.contains("submitted_unix_ms")) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t submitted, Count(json, "submitted_unix_ms"));
    m.submitted_unix_ms = static_cast<int64_t>(submitted);
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string spec, Text(json, "job_spec"));
  google::protobuf::TextFormat::Parser parser;
  parser.SetRecursionLimit(kTextDepthMax);
  parser.AllowUnknownField(true);  // the file may be from a newer version
  if (!parser.ParseFromString(spec, &m.spec)) return Bad("job_spec is not a JobSpec");
  if (m.spec.replicas() < 1 || m.spec.replicas() > kReplicasMax) return Bad("job_spec.replicas is not filled in");
  CAIRN_ASSIGN_OR_RETURN(const uint64_t step, Count(json, "step"));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t per_epoch, Count(json, "steps_per_epoch"));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t total, Count(json, "total_steps"));
  CAIRN_ASSIGN_OR_RETURN(m.train_examples, Count(json, "train_examples"));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t written, Count(json, "written_unix_ms"));
  if (per_epoch == 0) return Bad("steps_per_epoch is 0");
  m.step = static_cast<int64_t>(step);
  m.steps_per_epoch = static_cast<int64_t>(per_epoch);
  m.total_steps = static_cast<int64_t>(total);
  m.written_unix_ms = static_cast<int64_t>(written);
  const auto synchronous = json.find("synchronous");
  if (synchronous == json.end() || !synchronous->is_boolean()) return Bad("synchronous is missing");
  m.synchronous = synchronous->get<bool>();
  if (!m.synchronous) {
    CAIRN_ASSIGN_OR_RETURN(m.replica_step,
                           Counts<int64_t>(json, "replica_step", static_cast<size_t>(m.spec.replicas())));
    if (m.step != *std::min_element(m.replica_step.begin(), m.replica_step.end()))
      return Bad("step is not the slowest");
  }
  CAIRN_RETURN_IF_ERROR(ReadLossScale(json, m));
  CAIRN_RETURN_IF_ERROR(ReadFigures(json, m));
  CAIRN_RETURN_IF_ERROR(ReadFiles(json, m));
  CAIRN_RETURN_IF_ERROR(ReadPartitions(json, m));
  return m;
}

}  // namespace

const std::string& FilesNonce(const CheckpointManifest& manifest) { return manifest.files.at(kModelFile).nonce; }

void SetFilesNonce(const std::string& nonce, CheckpointManifest& manifest) {
  for (const char* file : {kModelFile, kOptimizerFile}) manifest.files[file].nonce = nonce;
}

bool IsNonce(absl::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == kNonceDigits && std::all_of(text.begin(), text.end(), is_digit);
}

std::string TensorsFileName(absl::string_view file, absl::string_view nonce) {
  if (nonce.empty()) return std::string(file);
  return absl::StrCat(absl::StripSuffix(file, kTensorsSuffix), "-", nonce, kTensorsSuffix);
}

std::string NonceOf(absl::string_view file, absl::string_view name) {
  const std::string before = absl::StrCat(absl::StripSuffix(file, kTensorsSuffix), "-");
  if (!absl::ConsumePrefix(&name, before) || !absl::ConsumeSuffix(&name, kTensorsSuffix)) return "";
  return IsNonce(name) ? std::string(name) : "";
}

std::string EncodeManifest(const CheckpointManifest& manifest) { return Seal(ToJson(manifest)); }

absl::StatusOr<CheckpointManifest> ParseManifest(absl::string_view text) {
  if (text.size() > kManifestBytesMax) return Bad("longer than ", kManifestBytesMax, " bytes");
  bool deep = false;
  const auto on_event = [&](int depth, ordered_json::parse_event_t, ordered_json&) {
    deep |= depth > kManifestDepthMax;
    return !deep;
  };
  ordered_json json = ordered_json::parse(text.begin(), text.end(), on_event, /*allow_exceptions=*/false);
  if (deep || !json.is_object()) return Bad("is not a JSON object; truncated or overwritten");
  CAIRN_ASSIGN_OR_RETURN(const std::string format, Text(json, "format"));
  if (format != kFormat) return Bad("format: \"", format, "\" is not \"", kFormat, "\"");
  CAIRN_ASSIGN_OR_RETURN(const uint64_t version, Count(json, "format_version"));
  if (version > kFormatVersion) {
    CAIRN_ASSIGN_OR_RETURN(const std::string by, Text(json, "library_version"));
    return absl::UnimplementedError(
        absl::StrFormat("manifest.json: format_version %d, written by Cairn %s; this one knows %d; use a newer one",
                        version, by, kFormatVersion));
  }
  json.erase(kChecksum);
  if (Seal(json) != text) return Bad("its checksum does not fit its text: it was altered");
  return Read(json);
}

}  // namespace cairn
