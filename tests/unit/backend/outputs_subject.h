// A job that trains several outputs, as backends get it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/model/job_check.h"
#include "common/model/job_outputs.h"
#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/backend.h"

namespace cairn {

// A trunk and its heads: numbers, classes, a map of sigmoids, and one without a loss. "c" is also read by "d".
inline constexpr char kOutputsJob[] = R"(
model {
  layers { name: "x" input { shape: 4 } }
  layers { name: "trunk" dense { units: 6 activation: TANH } }
  layers { name: "a" inputs: "trunk" dense { units: 2 } }
  layers { name: "b" inputs: "trunk" dense { units: 3 activation: SOFTMAX } }
  layers { name: "wide" inputs: "trunk" dense { units: 4 } }
  layers { name: "map" reshape { target_shape: [2, 2] } }
  layers { name: "c" activation { activation: SIGMOID } }
  layers { name: "flat" flatten {} }
  layers { name: "d" inputs: ["flat", "trunk"] concatenate {} }
  outputs: ["a", "b", "c", "d"]
}
data { path: "/d" targets { output: "a" columns: ["p", "q"] } targets { output: "b" columns: "k" }
       targets { output: "c" columns: ["0", "1", "2", "3"] } }
outputs { output: "c" loss { kind: BINARY_CROSSENTROPY } weight: 0.5 }
outputs { output: "a" loss { kind: MEAN_SQUARED_ERROR } weight: 3 metrics { kind: MEAN_ABSOLUTE_ERROR } }
outputs { output: "b" loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } metrics { kind: ACCURACY } }
optimizer { sgd {} }
)";

struct OutputsSubject {
  v1::JobSpec spec;
  std::vector<JoinedOutput> outputs;
  std::shared_ptr<const Graph> graph;
  ProgramOptions options;
};

inline OutputsSubject SubjectOf(const std::string& text) {
  OutputsSubject s;
  absl::StatusOr<CheckedJob> job = CheckJob(FromText<v1::JobSpec>(text));
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return s;
  s.spec = job->spec;
  s.outputs = JoinedOutputsOf(job->graph, s.spec);
  s.graph = std::make_shared<const Graph>(BuildJoined(s.spec.model(), s.outputs).value());
  s.options.batch_max = 5;
  s.options.outputs = s.outputs;
  s.options.metrics = FiguresOfJob(s.spec);
  return s;
}

// Five examples of four numbers. labels: those of an example, by its number; behind them are the weights of the
// examples, if any.
template <typename Labels>
Batch OutputsBatch(bool weights, Labels labels) {
  Batch batch;
  batch.examples = 5;
  std::vector<float> x, y;
  for (int i = 0; i < 20; ++i) x.push_back(static_cast<float>(std::sin(i * 1.7)));
  for (int e = 0; e < 5; ++e) {
    const std::vector<float> own = labels(e);
    batch.label_size = static_cast<int64_t>(own.size());
    y.insert(y.end(), own.begin(), own.end());
  }
  for (int e = 0; weights && e < 5; ++e) y.push_back(0.5f * static_cast<float>(e));
  batch.inputs = Buffer::CopyOf(x.data(), x.size() * sizeof(float));
  batch.labels = Buffer::CopyOf(y.data(), y.size() * sizeof(float));
  return batch;
}

// Of kOutputsJob, labels in the order of the outputs: two numbers for a, a class for b, four of 0 and 1 for c.
inline Batch SomeBatch(bool weights) {
  return OutputsBatch(weights, [](int e) {
    std::vector<float> own = {0.3f * static_cast<float>(e), -1, static_cast<float>(e % 3)};
    for (int i = 0; i < 4; ++i) own.push_back(static_cast<float>((e + i) % 2));
    return own;
  });
}

}  // namespace cairn
