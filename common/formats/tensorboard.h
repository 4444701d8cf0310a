// TensorBoard's event files: records (crc32c.h) of Event messages (proto/tensorboard/event.proto), and the messages of
// TensorFlow's summary operations.
//
// EventFile: one caller at a time. The rest are pure functions.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/formats/plain_file.h"
#include "common/model/graph.h"
#include "tensorboard/event.pb.h"

namespace cairn {

// A file to append to. An Add that returns OK is complete in the file; one that fails (a full disk) leaves nothing in
// it, since readers stop at the first torn record. A record torn by a crash is at the end, where readers skip it.
class EventFile {
 public:
  // Creates the file, with the event that names the file version. Errors name the file and the system's reason.
  static absl::StatusOr<EventFile> Create(const std::string& path, double wall_time);
  absl::Status Add(absl::Span<const tensorboard::Event> events);
  const std::string& path() const { return path_; }

 private:
  EventFile(std::string path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  FileDescriptor file_;
  off_t bytes_ = 0;  // of complete events
};

// All complete events, up to the first record that is torn or altered. Errors: NOT_FOUND and others of the system.
absl::StatusOr<std::vector<tensorboard::Event>> ReadEvents(const std::string& path);

// As tf.summary.scalar.
void AddScalar(absl::string_view tag, float value, tensorboard::Summary* summary);
// As tf.summary.histogram: `buckets` of equal width from the smallest to the largest value. Non-finite values are
// skipped.
void AddHistogram(absl::string_view tag, absl::Span<const float> values, int buckets, tensorboard::Summary* summary);
// One node per layer: its name, type, inputs and output shape.
tensorboard::GraphDef GraphOf(const Graph& graph);

inline constexpr int kHistogramBuckets = 30;  // TensorFlow's default

}  // namespace cairn
