#include "client/cli/prediction_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/files.h"
#include "common/model/graph.h"
#include "common/model/job_outputs.h"

namespace cairn {
namespace {

// NumPy's format 1.0: magic, version, length of the header (uint16), the header padded with spaces and a line feed.
constexpr char kNpyMagic[] = "\x93NUMPY\x01\x00";
constexpr size_t kNpyHeaderBytes = 192;  // room for the number of examples, which is not known before the end

// The shortest text that reads back as the same number.
std::string NumberText(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), static_cast<float>(value)).ptr;
  return std::string(text, end);
}

// JSON has neither NaN nor infinity.
std::string JsonNumber(double value) { return std::isfinite(value) ? NumberText(value) : "null"; }

// Bytes that are not UTF-8 are replaced.
std::string JsonText(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string JsonNumbers(absl::Span<const float> numbers) {
  const auto append = [](std::string* out, float number) { out->append(JsonNumber(number)); };
  return absl::StrCat("[", absl::StrJoin(numbers, ",", append), "]");
}

std::string CsvText(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) absl::StrAppend(&quoted, c == '"' ? "\"\"" : std::string(1, c));
  return quoted + "\"";
}

std::string JsonByOutput(const std::vector<NamedOutput>& outputs, const float* numbers) {
  std::string text = "{";
  for (const NamedOutput& output : outputs) {
    const auto size = static_cast<size_t>(NumElements(output.shape));
    absl::StrAppend(&text, text.back() == '{' ? "" : ",", JsonText(output.name), ":", JsonNumbers({numbers, size}));
    numbers += size;
  }
  return text + "}";
}

std::vector<std::string> ColumnsOf(const std::vector<NamedOutput>& outputs) {
  std::vector<std::string> columns;
  for (const NamedOutput& output : outputs) {
    const int64_t size = NumElements(output.shape);
    for (int64_t i = 0; i < size; ++i) {
      columns.push_back(size == 1 ? output.name : absl::StrCat(output.name, "_", i));
    }
  }
  return columns;
}

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::InvalidArgumentError(absl::StrFormat("-o %s: cannot %s: %s", path, what, std::strerror(errno)));
}

}  // namespace

absl::StatusOr<PredictionFormat> PredictionFormatOf(const std::string& path) {
  if (absl::EndsWithIgnoreCase(path, ".csv")) return PredictionFormat::kCsv;
  if (absl::EndsWithIgnoreCase(path, ".npy")) return PredictionFormat::kNpy;
  if (absl::EndsWithIgnoreCase(path, ".jsonl")) return PredictionFormat::kJsonLines;
  return absl::InvalidArgumentError(
      absl::StrFormat("-o %s: the extension selects the format; use .csv, .npy or .jsonl", path));
}

absl::StatusOr<std::vector<NamedOutput>> OutputsOf(const v1::JobSpec& spec) {
  std::vector<NamedOutput> outputs;
  if (!TrainsOutputs(spec)) return outputs;
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  for (const JoinedOutput& output : JoinedOutputsOf(graph, spec)) outputs.push_back({output.name, output.shape});
  return outputs;
}

absl::StatusOr<ClassDecision> ClassDecision::Of(const v1::JobStatus& job) {
  if (TrainsOutputs(job.spec())) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "--classes: job %d has several outputs; leave --classes out, and take the largest of each", job.job_id()));
  }
  ClassDecision decision;
  decision.from_logits = job.spec().loss().from_logits();
  decision.names.assign(job.data().class_names().begin(), job.data().class_names().end());
  switch (job.spec().loss().kind()) {
    case v1::Loss::BINARY_CROSSENTROPY: decision.binary = true; return decision;
    case v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY:
    case v1::Loss::CATEGORICAL_CROSSENTROPY: return decision;
    default:
      return absl::FailedPreconditionError(
          absl::StrFormat("--classes: the outputs of job %d are not classes (its loss is %s)", job.job_id(),
                          v1::Loss::Kind_Name(job.spec().loss().kind())));
  }
}

ClassDecision::Choice ClassDecision::Decide(const float* outputs, size_t count) const {
  if (binary && count == 1) {
    const double p = from_logits ? 1 / (1 + std::exp(-static_cast<double>(outputs[0]))) : outputs[0];
    return p >= 0.5 ? Choice{1, p} : Choice{0, 1 - p};
  }
  const size_t best = static_cast<size_t>(std::max_element(outputs, outputs + count) - outputs);
  if (!from_logits) return {best, outputs[best]};
  double sum = 0;  // of the softmax
  for (size_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(outputs[i]) - outputs[best]);
  return {best, 1 / sum};
}

std::string ClassDecision::Name(size_t number) const {
  return number < names.size() ? names[number] : absl::StrCat(number);
}

absl::StatusOr<std::unique_ptr<PredictionWriter>> PredictionWriter::Open(const std::string& path,
                                                                         PredictionFormat format,
                                                                         std::unique_ptr<ClassDecision> decision) {
  if (decision != nullptr && format == PredictionFormat::kNpy) {
    return absl::InvalidArgumentError("--classes: names do not fit into .npy; use .csv or .jsonl");
  }
  std::unique_ptr<PredictionWriter> writer(new PredictionWriter);
  writer->path_ = path;
  writer->format_ = format;
  writer->decision_ = std::move(decision);
  if (path == "-") {
    if (format == PredictionFormat::kNpy) return absl::InvalidArgumentError("-o -: .npy needs a file");
    writer->file_ = stdout;
    return writer;
  }
  writer->beside_ = absl::StrCat(path, ".", getpid(), ".partial");
  writer->file_ = std::fopen(writer->beside_.c_str(), "wb");
  if (writer->file_ == nullptr) return SystemError(path, "write");
  return writer;
}

void PredictionWriter::NameOutputs(std::vector<NamedOutput> outputs) {
  outputs_ = std::move(outputs);
  const std::vector<std::string> columns = ColumnsOf(outputs_);
  while (std::find(columns.begin(), columns.end(), input_key_) != columns.end()) input_key_ += "_name";
}

PredictionWriter::~PredictionWriter() {
  if (file_ == nullptr || file_ == stdout) return;
  std::fclose(file_);
  unlink(beside_.c_str());
}

absl::Status PredictionWriter::Put(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) == text.size()) return absl::OkStatus();
  return SystemError(path_, "write");
}

std::string PredictionWriter::NpyHeader() const {
  std::string header(kNpyMagic, 8);
  const auto length = static_cast<uint16_t>(kNpyHeaderBytes - 10);
  header.push_back(static_cast<char>(length & 0xff));
  header.push_back(static_cast<char>(length >> 8));
  absl::StrAppend(&header, "{'descr': '<f4', 'fortran_order': False, 'shape': (", examples_, ",");
  for (int32_t side : shape_) absl::StrAppend(&header, " ", side, ",");
  header += "), }";
  header.resize(std::max(header.size(), kNpyHeaderBytes - 1), ' ');
  return header + "\n";
}

std::string PredictionWriter::Header(const v1::PredictResponse& part) const {
  if (format_ == PredictionFormat::kNpy) return NpyHeader();
  if (format_ == PredictionFormat::kJsonLines) return "";
  if (decision_ != nullptr) return "example,class,probability,input\n";
  std::string header = "example";
  for (const std::string& name : ColumnsOf(outputs_)) absl::StrAppend(&header, ",", CsvText(name));
  if (!outputs_.empty()) return absl::StrCat(header, ",", input_key_, "\n");
  for (uint64_t i = 0; i < part.outputs().size() / sizeof(float) / std::max<uint64_t>(part.examples(), 1); ++i) {
    absl::StrAppend(&header, ",output_", i);
  }
  return header + ",input\n";
}

std::string PredictionWriter::Line(uint64_t example, const std::string* input, absl::Span<const float> outputs) const {
  const bool csv = format_ == PredictionFormat::kCsv;
  const std::string name =
      csv ? absl::StrCat(",", input == nullptr ? "" : CsvText(*input), "\n")
          : absl::StrCat(",\"", input_key_, "\":", input == nullptr ? "null" : JsonText(*input), "}\n");
  if (decision_ != nullptr) {
    const ClassDecision::Choice choice = decision_->Decide(outputs.data(), outputs.size());
    const std::string chosen = decision_->Name(choice.number);
    if (csv) return absl::StrCat(example, ",", CsvText(chosen), ",", NumberText(choice.probability), name);
    return absl::StrCat("{\"example\":", example, ",\"class\":", JsonText(chosen),
                        ",\"probability\":", JsonNumber(choice.probability), name);
  }
  if (csv) {
    std::string line = absl::StrCat(example);
    for (const float output : outputs) absl::StrAppend(&line, ",", NumberText(output));
    return line + name;
  }
  return absl::StrCat("{\"example\":", example,
                      ",\"outputs\":", outputs_.empty() ? JsonNumbers(outputs) : JsonByOutput(outputs_, outputs.data()),
                      name);
}

absl::Status PredictionWriter::Write(const v1::PredictResponse& part) {
  if (part.examples() == 0) return absl::OkStatus();
  const size_t bytes = part.outputs().size() / part.examples();
  if (bytes * part.examples() != part.outputs().size() || bytes % sizeof(float) != 0 || bytes == 0) {
    return absl::InternalError(
        absl::StrFormat("%d bytes of outputs for %d examples", part.outputs().size(), part.examples()));
  }
  if (!std::exchange(begun_, true)) {
    shape_.assign(part.output_shape().begin(), part.output_shape().end());
    CAIRN_RETURN_IF_ERROR(Put(Header(part)));
  }
  if (format_ == PredictionFormat::kNpy) {
    CAIRN_RETURN_IF_ERROR(Put(part.outputs()));
  } else {
    std::vector<float> outputs(bytes / sizeof(float));
    for (uint64_t e = 0; e < part.examples(); ++e) {
      std::memcpy(outputs.data(), part.outputs().data() + e * bytes, bytes);
      const int at = static_cast<int>(e);
      const std::string* const input = at < part.inputs_size() ? &part.inputs(at) : nullptr;
      CAIRN_RETURN_IF_ERROR(Put(Line(part.first_example() + e, input, outputs)));
    }
  }
  examples_ += part.examples();
  return absl::OkStatus();
}

absl::Status PredictionWriter::Close() {
  if (format_ == PredictionFormat::kNpy) {
    if (std::fseek(file_, 0, SEEK_SET) != 0) return SystemError(path_, "write");
    CAIRN_RETURN_IF_ERROR(Put(NpyHeader()));
  }
  std::FILE* file = file_;
  if (file == stdout) return std::fflush(file) == 0 ? absl::OkStatus() : SystemError(path_, "write");
  file_ = nullptr;
  if (std::fclose(file) == 0) return PutInPlace(beside_, path_);
  absl::Status status = SystemError(path_, "write");
  unlink(beside_.c_str());
  return status;
}

absl::StatusOr<std::unique_ptr<NpyByOutput>> NpyByOutput::Open(const std::string& path,
                                                               std::vector<NamedOutput> outputs) {
  auto files = std::make_unique<NpyByOutput>();
  const std::string stem = path.substr(0, path.size() - 4), ending = path.substr(path.size() - 4);
  for (const NamedOutput& output : outputs) {
    files->paths_.push_back(absl::StrCat(stem, ".", absl::StrReplaceAll(output.name, {{"/", "_"}}), ending));
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<PredictionWriter> writer,
                           PredictionWriter::Open(files->paths_.back(), PredictionFormat::kNpy, nullptr));
    files->writers_.push_back(std::move(writer));
  }
  files->outputs_ = std::move(outputs);
  return files;
}

absl::Status NpyByOutput::Write(const v1::PredictResponse& part) {
  size_t all = 0, begin = 0;
  for (const NamedOutput& output : outputs_) all += static_cast<size_t>(NumElements(output.shape)) * sizeof(float);
  if (part.outputs().size() != all * part.examples()) {
    return absl::InternalError(
        absl::StrFormat("%d bytes of outputs for %d examples", part.outputs().size(), part.examples()));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const size_t bytes = static_cast<size_t>(NumElements(outputs_[i].shape)) * sizeof(float);
    v1::PredictResponse own;
    own.set_first_example(part.first_example());
    own.set_examples(part.examples());
    for (int64_t side : outputs_[i].shape) own.add_output_shape(static_cast<int32_t>(side));
    for (uint64_t e = 0; e < part.examples(); ++e)
      own.mutable_outputs()->append(part.outputs(), e * all + begin, bytes);
    CAIRN_RETURN_IF_ERROR(writers_[i]->Write(own));
    begin += bytes;
  }
  return absl::OkStatus();
}

absl::Status NpyByOutput::Close() {
  for (const auto& writer : writers_) CAIRN_RETURN_IF_ERROR(writer->Close());
  return absl::OkStatus();
}

}  // namespace cairn
