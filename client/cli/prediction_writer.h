// PredictionWriter: writes a model's outputs, part by part, as CSV, NumPy's .npy or JSON lines. The last column of CSV,
// and the last key of JSON lines, is `input`: what the example is in the data (PredictResponse.inputs). If a column of
// the outputs is called so, it is `input_name` (and again, `input_name_name`).
//
// One thread. Invariants:
//   1. Memory does not grow with the number of examples.
//   2. A file is complete or absent: it is written under a temporary name and renamed by Close. "-": standard output.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

enum class PredictionFormat { kCsv, kNpy, kJsonLines };

// By the file extension: .csv, .npy, .jsonl. Errors: INVALID_ARGUMENT.
absl::StatusOr<PredictionFormat> PredictionFormatOf(const std::string& path);

// The likeliest class of each example.
struct ClassDecision {
  bool from_logits = false;
  bool binary = false;             // one output: the probability of class 1
  std::vector<std::string> names;  // by class; a class without a name shows its number
  // Errors: FAILED_PRECONDITION: the job's outputs are not classes.
  static absl::StatusOr<ClassDecision> Of(const v1::JobStatus& job);
  struct Choice {
    size_t number = 0;
    double probability = 0;
  };
  Choice Decide(const float* outputs, size_t count) const;
  std::string Name(size_t number) const;
};

// Of a model with several outputs: how many of an example's numbers are whose.
struct NamedOutput {
  std::string name;
  Shape shape;
};
// In the order of an example's numbers; empty: the job has one output.
absl::StatusOr<std::vector<NamedOutput>> OutputsOf(const v1::JobSpec& spec);

class PredictionWriter {
 public:
  // decision: null: write the outputs; else write "example, class, probability, input" (not as .npy).
  static absl::StatusOr<std::unique_ptr<PredictionWriter>> Open(const std::string& path, PredictionFormat format,
                                                                std::unique_ptr<ClassDecision> decision);
  // CSV and JSON lines: columns and keys by output. Before the first Write.
  void NameOutputs(std::vector<NamedOutput> outputs);
  ~PredictionWriter();  // without Close, removes the file

  absl::Status Write(const v1::PredictResponse& part);
  absl::Status Close();
  uint64_t examples() const { return examples_; }

 private:
  PredictionWriter() = default;
  absl::Status Put(const std::string& text);
  std::string Header(const v1::PredictResponse& part) const;
  std::string NpyHeader() const;
  // input: null: it is not known.
  std::string Line(uint64_t example, const std::string* input, absl::Span<const float> outputs) const;

  std::string path_, beside_;
  PredictionFormat format_ = PredictionFormat::kCsv;
  std::unique_ptr<ClassDecision> decision_;
  std::FILE* file_ = nullptr;
  std::vector<int32_t> shape_;  // of one example
  std::vector<NamedOutput> outputs_;
  std::string input_key_ = "input";
  uint64_t examples_ = 0;
  bool begun_ = false;
};

// .npy of a model with several outputs: a file for each, PATH with the output's name before its ending.
class NpyByOutput {
 public:
  static absl::StatusOr<std::unique_ptr<NpyByOutput>> Open(const std::string& path, std::vector<NamedOutput> outputs);
  absl::Status Write(const v1::PredictResponse& part);
  absl::Status Close();
  const std::vector<std::string>& paths() const { return paths_; }
  uint64_t examples() const { return writers_.front()->examples(); }

 private:
  std::vector<NamedOutput> outputs_;
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<PredictionWriter>> writers_;
};

}  // namespace cairn
