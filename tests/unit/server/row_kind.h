// RowKind: a second kind of partition, for tests: numbers by 64-bit id, of which only those that updates touched are
// kept. It has little in common with a range of the parameter space: a gradient names ids, an image has any size, a
// pull may ask for some ids only.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/core/partition_image.h"
#include "server/core/partition_state.h"

namespace cairn {

using Rows = std::map<uint64_t, double>;  // by id

// Pairs of id and number, in order of id.
inline constexpr size_t kRowBytes = 16;
inline Buffer EncodeRows(const Rows& rows) {
  Buffer out = Buffer::Allocate(rows.size() * kRowBytes);
  uint8_t* at = out.mutable_data();
  for (const auto& [id, number] : rows) {
    std::memcpy(at, &id, 8);
    std::memcpy(at + 8, &number, 8);
    at += kRowBytes;
  }
  return out;
}
inline Rows DecodeRows(const Buffer& bytes) {
  Rows rows;
  for (size_t at = 0; at < bytes.size(); at += kRowBytes) {
    uint64_t id = 0;
    double number = 0;
    std::memcpy(&id, bytes.data() + at, 8);
    std::memcpy(&number, bytes.data() + at + 8, 8);
    rows[id] = number;
  }
  return rows;
}
inline Buffer EncodeIds(const std::vector<uint64_t>& ids) { return Buffer::CopyOf(ids.data(), ids.size() * 8); }

// The value of a row before an update touches it.
inline double InitialRow(uint64_t id) { return static_cast<double>(id % 1000) / 8; }

class RowContents : public PartitionContents {
 public:
  RowContents() = default;  // empty
  RowContents(Rows rows, std::optional<Rows> touched, std::optional<Rows> previous)
      : rows_(std::move(rows)), touched_(std::move(touched)), previous_(std::move(previous)) {}
  static const RowContents& Of(const PartitionState& state) {
    return dynamic_cast<const RowContents&>(*state.contents);
  }
  const Rows& rows() const { return *rows_; }
  const Rows& touched() const { return *touched_; }

  Buffer AddPenalties(const PartitionSettings&, uint64_t, Buffer gradient) const override { return gradient; }
  void Apply(const PartitionSettings&, const v1::LogEntry& entry, uint64_t, Buffer gradient) override {
    previous_ = rows_;
    for (const auto& [id, number] : DecodeRows(gradient)) {
      double& row = rows_->try_emplace(id, InitialRow(id)).first->second;
      row -= entry.learning_rate() * number / static_cast<double>(entry.examples());
      ++(*touched_)[id];
    }
  }
  bool trainable(const PartitionSettings&) const override { return rows_ && touched_; }
  Buffer Read(const PartitionSettings&, const ValuesQuery& query) override {
    const Rows& rows = query.previous ? *previous_ : *rows_;
    if (query.asked.empty()) return EncodeRows(rows);
    Rows asked;
    for (size_t at = 0; at < query.asked.size(); at += 8) {
      uint64_t id = 0;
      std::memcpy(&id, query.asked.data() + at, 8);
      const auto row = rows.find(id);
      asked[id] = row == rows.end() ? InitialRow(id) : row->second;
    }
    return EncodeRows(asked);
  }
  bool has_previous() const override { return previous_.has_value(); }
  void ForgetPrevious() override { previous_.reset(); }
  void AddTo(const ImageParts& parts, Image& image) const override {
    image.tensors.push_back(EncodeRows(*rows_));
    image.header.set_slots(parts.training ? 1 : 0);
    if (parts.training) image.tensors.push_back(EncodeRows(*touched_));
    if (parts.previous && previous_) image.tensors.push_back(EncodeRows(*previous_));
  }
  size_t image_bytes() const override {
    return kRowBytes * ((rows_ ? rows_->size() : 0) + (touched_ ? touched_->size() : 0));
  }
  bool empty() const override { return !rows_; }
  void Clear() override {
    rows_.reset();
    touched_.reset();
    previous_.reset();
  }

 private:
  std::optional<Rows> rows_;
  std::optional<Rows> touched_;  // number of updates by id: what an update needs besides the numbers
  std::optional<Rows> previous_;
};

class RowKind : public PartitionKind {
 public:
  absl::Status CheckPayload(const PartitionSettings&, const Frame& push) const override {
    if (push.payload.size() % kRowBytes == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("payload: ", push.payload.size(), " bytes are no rows"));
  }
  Buffer TakeGradient(const PartitionSettings&, Frame& push) const override { return std::exchange(push.payload, {}); }
  Buffer Merge(const PartitionSettings&, uint64_t, const TreeNode&, Buffer left, Buffer right) const override {
    Rows sum = DecodeRows(left);
    for (const auto& [id, number] : DecodeRows(right)) sum[id] += number;
    return EncodeRows(sum);
  }
  NormRecord Measure(const ClipScope& scope, const Buffer& gradient, uint64_t examples) const override {
    NormRecord record{scope.id, scope.numbers, scope.total, {}};
    for (const auto& [id, number] : DecodeRows(gradient)) {
      const float rounded = static_cast<float>(number);
      record.squares.Add({&rounded, 1}, static_cast<float>(examples));
    }
    return record;
  }
  void Scale(const ClipScope&, double factor, Buffer& gradient) const override {
    Rows rows = DecodeRows(gradient);
    for (auto& [id, number] : rows) number *= factor;
    gradient = EncodeRows(rows);
  }
  bool keeps_average() const override { return false; }

  v1::DataType LogDtype(const PartitionSettings&) const override { return v1::FLOAT32; }
  absl::Status CheckPacked(const PartitionSettings&, v1::DataType, size_t bytes) const override {
    if (bytes % kRowBytes == 0) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("has ", bytes, " bytes, which are no rows"));
  }
  Buffer Pack(const PartitionSettings&, const v1::LogEntry&, const Buffer& gradient) const override { return gradient; }
  Buffer Unpack(const PartitionSettings&, const v1::LogEntry&, Buffer packed) const override { return packed; }
  size_t PackedBytes(const PartitionSettings&, const v1::LogEntry&, const Buffer& gradient) const override {
    return gradient.size();
  }

  absl::StatusOr<Buffer> TakeQuery(const PartitionSettings&, Frame& pull) const override {
    if (pull.payload.size() % 8 == 0) return std::exchange(pull.payload, {});
    return absl::InvalidArgumentError(absl::StrCat("payload: ", pull.payload.size(), " bytes are no ids"));
  }

  std::unique_ptr<PartitionContents> MakeInitial(const PartitionSettings&) const override {
    return std::make_unique<RowContents>(Rows(), Rows(), std::nullopt);
  }
  std::unique_ptr<PartitionContents> MakeEmpty() const override { return std::make_unique<RowContents>(); }
  std::unique_ptr<PartitionContents> MakeFrom(const PartitionSettings&, const Image& image) const override {
    std::vector<std::optional<Rows>> parts;
    for (const Buffer& tensor : image.tensors) parts.push_back(DecodeRows(tensor));
    if (image.header.slots() == 0) parts.insert(parts.begin() + 1, std::nullopt);
    if (parts.size() < 3) parts.push_back(std::nullopt);
    return std::make_unique<RowContents>(*parts[0], parts[1], parts[2]);
  }

  absl::Status CheckHeader(const PartitionSettings& settings, const v1::PartitionImage& header,
                           size_t tensors) const override {
    const bool fits = header.slots() == 1 || (settings.ended && header.slots() == 0);
    if (fits && (tensors == header.slots() + 1 || tensors == header.slots() + 2)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("slots: ", header.slots(), " with ", tensors, " tensors"));
  }
  absl::Status CheckTensor(const PartitionSettings&, size_t, size_t bytes) const override {
    return bytes % kRowBytes == 0 ? absl::OkStatus() : absl::InvalidArgumentError("rows");
  }
  ImageParts PartsOf(const v1::PartitionImage& header, size_t tensors) const override {
    return {header.slots() > 0, tensors == header.slots() + 2};
  }
};

}  // namespace cairn
