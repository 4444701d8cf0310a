#include "common/formats/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/files.h"

namespace cairn {
namespace {

constexpr char kFileVersion[] = "brain.Event:2";
constexpr int kDtFloat = 1, kDtDouble = 2;  // TensorFlow's DataType
constexpr int kDataClassScalar = 1, kDataClassTensor = 2;
constexpr int kGraphProducer = 987;  // any value of TensorFlow 2; readers require one

}  // namespace

absl::StatusOr<EventFile> EventFile::Create(const std::string& path, double wall_time) {
  CAIRN_ASSIGN_OR_RETURN(FileDescriptor opened, OpenPlainFile(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND));
  EventFile file(path, std::move(opened));
  tensorboard::Event first;
  first.set_wall_time(wall_time);
  first.set_file_version(kFileVersion);
  const absl::Status status = file.Add({first});
  if (!status.ok()) {
    RemoveFile(path);  // a retry, on a full disk, uses another name
    return status;
  }
  return file;
}

absl::Status EventFile::Add(absl::Span<const tensorboard::Event> events) {
  std::string bytes;
  for (const tensorboard::Event& event : events) AppendRecord(event.SerializeAsString(), &bytes);
  const absl::Status status = WriteAll(file_.get(), bytes, path_);
  if (status.ok()) {
    bytes_ += static_cast<off_t>(bytes.size());
  } else if (::ftruncate(file_.get(), bytes_) != 0) {
    return FileError(path_, absl::StrCat(status.message(), ", and its part cannot be cut off"));
  }
  return status;
}

absl::StatusOr<std::vector<tensorboard::Event>> ReadEvents(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Buffer file, ReadFileBytes(path));
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  std::vector<tensorboard::Event> events;
  for (size_t at = 0; bytes.size() - at >= kRecordHeaderBytes + kRecordFooterBytes;) {
    uint64_t length = 0;
    if (!ParseRecordHeader(bytes.data() + at, &length)) break;
    if (length > bytes.size() - at - kRecordHeaderBytes - kRecordFooterBytes) break;
    const std::string_view data(bytes.data() + at + kRecordHeaderBytes, length);
    if (!RecordIsWhole(data, data.data() + length)) break;
    if (!events.emplace_back().ParseFromArray(data.data(), static_cast<int>(length))) {
      events.pop_back();
      break;
    }
    at += kRecordHeaderBytes + length + kRecordFooterBytes;
  }
  return events;
}

void AddScalar(absl::string_view tag, float value, tensorboard::Summary* summary) {
  tensorboard::Summary::Value& v = *summary->add_value();
  v.set_tag(std::string(tag));
  v.mutable_tensor()->set_dtype(kDtFloat);
  v.mutable_tensor()->mutable_tensor_shape();
  v.mutable_tensor()->add_float_val(value);
  v.mutable_metadata()->mutable_plugin_data()->set_plugin_name("scalars");
  v.mutable_metadata()->set_data_class(kDataClassScalar);
}

void AddHistogram(absl::string_view tag, absl::Span<const float> values, int buckets, tensorboard::Summary* summary) {
  double low = INFINITY, high = -INFINITY;
  size_t finite = 0;
  for (float value : values) {
    if (!std::isfinite(value)) continue;
    ++finite;
    low = std::min<double>(low, value);
    high = std::max<double>(high, value);
  }
  std::vector<double> rows;  // left, right, count
  if (finite > 0 && low == high) {
    rows = {low - 0.5, low + 0.5, static_cast<double>(finite)};
  } else if (finite > 0) {
    const double width = (high - low) / buckets;
    std::vector<size_t> counts(static_cast<size_t>(buckets));
    for (float value : values) {
      if (!std::isfinite(value)) continue;
      const auto bucket = static_cast<int>((value - low) / width);
      ++counts[static_cast<size_t>(std::clamp(bucket, 0, buckets - 1))];
    }
    for (int i = 0; i < buckets; ++i) {
      rows.push_back(low + i * width);
      rows.push_back(i + 1 == buckets ? high : low + (i + 1) * width);
      rows.push_back(static_cast<double>(counts[static_cast<size_t>(i)]));
    }
  }
  tensorboard::Summary::Value& v = *summary->add_value();
  v.set_tag(std::string(tag));
  tensorboard::Tensor& tensor = *v.mutable_tensor();
  tensor.set_dtype(kDtDouble);
  tensor.mutable_tensor_shape()->add_dim()->set_size(static_cast<int64_t>(rows.size() / 3));
  tensor.mutable_tensor_shape()->add_dim()->set_size(3);
  tensor.set_tensor_content(std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(double)));
  v.mutable_metadata()->mutable_plugin_data()->set_plugin_name("histograms");
  v.mutable_metadata()->set_data_class(kDataClassTensor);
}

tensorboard::GraphDef GraphOf(const Graph& graph) {
  tensorboard::GraphDef def;
  def.mutable_versions()->set_producer(kGraphProducer);
  for (const Node& node : graph.nodes()) {
    tensorboard::NodeDef& n = *def.add_node();
    n.set_name(node.name);
    n.set_op(LayerTypeName(node.kind));
    for (int input : node.inputs) n.add_input(graph.nodes()[static_cast<size_t>(input)].name);
    tensorboard::TensorShape& shape = *(*n.mutable_attr())["shape"].mutable_shape();
    shape.add_dim()->set_size(-1);  // the batch
    for (int64_t side : node.output) shape.add_dim()->set_size(side);
    int64_t parameters = 0;
    for (int v : node.variables) parameters += graph.variables()[static_cast<size_t>(v)].size;
    if (parameters > 0) (*n.mutable_attr())["parameters"].set_i(parameters);
  }
  return def;
}

}  // namespace cairn
