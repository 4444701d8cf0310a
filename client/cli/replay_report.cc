#include "client/cli/replay_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string JobName(const v1::JobStatus& job) {
  return absl::StrFormat("job %d \"%s\"", job.job_id(), job.spec().name());
}

void AddLine(std::string* text, const std::string& name, const std::string& value) {
  absl::StrAppendFormat(text, "  %-13s %s\n", name, value);
}

std::string CheckText(const ReplayResult& result) {
  if (!result.check) {
    return "none: neither the job nor a checkpoint has a digest after this step or soon after it";
  }
  const ReplayResult::Check& check = *result.check;
  return absl::StrFormat("%s after %d updates: %s, %s", check.same() ? "the same bits" : "other bits", check.updates,
                         check.recorded.digest, check.recorded.where);
}

const char* KindName(NotFinite::Kind kind) {
  switch (kind) {
    case NotFinite::Kind::kInput: return "input";
    case NotFinite::Kind::kLabel: return "label";
    case NotFinite::Kind::kOutput: return "output";
    case NotFinite::Kind::kLoss: return "loss";
    case NotFinite::Kind::kGradient: return "gradient";
    case NotFinite::Kind::kVariable: return "variable";
  }
  return "";
}

std::string KindText(const NotFinite& found) {
  switch (found.kind) {
    case NotFinite::Kind::kInput: return "the example itself";
    case NotFinite::Kind::kLabel: return "the example's label or weight";
    case NotFinite::Kind::kOutput: return absl::StrFormat("the output of layer \"%s\"", found.name);
    case NotFinite::Kind::kLoss:
      return found.not_looked_at.empty() ? "the loss; the outputs of all layers are finite" : "the loss";
    case NotFinite::Kind::kGradient: return absl::StrFormat("the gradient of \"%s\"; the loss is finite", found.name);
    case NotFinite::Kind::kVariable:
      return absl::StrFormat("\"%s\" after the update; each replica's gradient is finite", found.name);
  }
  return "";
}

Json OriginJson(const v1::JobStatus& job, const ReplayOrigin& origin) {
  return {{"job_id", job.job_id()},
          {"name", job.spec().name()},
          {"from", origin.from},
          {"first_step", origin.first_step},
          {"device", origin.device}};
}

}  // namespace

std::string ReplayText(const v1::JobStatus& job, const ReplayResult& result) {
  std::string text = absl::StrFormat("%s: step %d, computed again\n", JobName(job), result.step);
  AddLine(&text, "from", absl::StrFormat("%s, step %d", result.origin.from, result.origin.first_step));
  AddLine(&text, "on", result.origin.device);
  AddLine(&text, "examples", Thousands(result.sums.examples()));
  for (const auto& [name, value] : MeanFigures(job.spec(), result.sums)) AddLine(&text, name, FigureText(value));
  AddLine(&text, "learning_rate", absl::StrFormat("%g", result.learning_rate));
  if (result.loss_scale > 0) AddLine(&text, "loss_scale", absl::StrFormat("%g", result.loss_scale));
  AddLine(&text, "digest", result.digest);
  AddLine(&text, "check", CheckText(result));
  size_t width = 5;
  for (const LayerNorms& layer : result.layers) width = std::max(width, layer.layer.size());
  absl::StrAppendFormat(&text, "\n%-*s %12s %12s %12s\n", static_cast<int>(width), "layer", "weights", "gradient",
                        "update");
  for (const LayerNorms& layer : result.layers) {
    absl::StrAppendFormat(&text, "%-*s %12.6g %12.6g %12.6g\n", static_cast<int>(width), layer.layer, layer.weights,
                          layer.gradient, layer.update);
  }
  return text;
}

std::string ReplayJson(const v1::JobStatus& job, const ReplayResult& result) {
  Json object = OriginJson(job, result.origin);
  object["step"] = result.step;
  object["examples"] = result.sums.examples();
  for (const auto& [name, value] : MeanFigures(job.spec(), result.sums)) object[name] = value;
  object["learning_rate"] = result.learning_rate;
  if (result.loss_scale > 0) object["loss_scale"] = result.loss_scale;
  object["digest"] = result.digest;
  object["check"] = nullptr;
  if (result.check) {
    const ReplayResult::Check& check = *result.check;
    object["check"] = {{"updates", check.updates},
                       {"digest", check.digest},
                       {"recorded", check.recorded.digest},
                       {"where", check.recorded.where},
                       {"same", check.same()}};
  }
  object["layers"] = Json::array();
  for (const LayerNorms& layer : result.layers) {
    object["layers"].push_back(
        {{"layer", layer.layer}, {"weights", layer.weights}, {"gradient", layer.gradient}, {"update", layer.update}});
  }
  return Dump(object);
}

std::string FindText(const v1::JobStatus& job, const FindResult& result) {
  std::string text =
      absl::StrFormat("%s: steps %d to %d, computed again: ", JobName(job), result.origin.first_step, result.last_step);
  absl::StrAppend(&text, result.found ? "a number is not finite\n" : "everything is finite\n");
  AddLine(&text, "from", absl::StrFormat("%s, step %d", result.origin.from, result.origin.first_step));
  AddLine(&text, "on", result.origin.device);
  if (!result.found) return text;
  const NotFinite& found = *result.found;
  AddLine(&text, "step", absl::StrCat(found.step));
  AddLine(&text, "first", KindText(found));
  if (found.replica) AddLine(&text, "replica", absl::StrCat(*found.replica));
  AddLine(&text, "example",
          found.example ? absl::StrFormat("%d of the training examples, from 0", *found.example)
                        : std::string("none alone"));
  for (const std::string& layer : found.not_looked_at) AddLine(&text, "not looked at", layer);
  return text;
}

std::string FindJson(const v1::JobStatus& job, const FindResult& result) {
  Json object = OriginJson(job, result.origin);
  object["last_step"] = result.last_step;
  object["found"] = nullptr;
  if (result.found) {
    const NotFinite& found = *result.found;
    Json& out = object["found"];
    out = {{"step", found.step}, {"kind", KindName(found.kind)}, {"name", found.name}};
    out["replica"] = found.replica ? Json(*found.replica) : Json(nullptr);
    out["example"] = found.example ? Json(*found.example) : Json(nullptr);
    out["not_looked_at"] = found.not_looked_at;
  }
  return Dump(object);
}

std::string DifferenceText(const v1::JobStatus& job, const ReplayResult& result) {
  const ReplayResult::Check& check = *result.check;
  return absl::StrFormat(
      "%s: after %d updates the digest is %s here, but %s, %s: the data, the checkpoint, the kind of processor or the "
      "version of Cairn is not the one that the job had",
      JobName(job), check.updates, check.digest, check.recorded.digest, check.recorded.where);
}

}  // namespace cairn
