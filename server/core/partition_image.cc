#include "server/core/partition_image.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

template <typename... What>
absl::Status Bad(const PartitionConfig& c, const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(c.Name(), ": image: ", what...));
}

absl::Status CheckReceived(const PartitionConfig& c, const v1::PartitionImage& h, uint32_t tensors) {
  if (h.begin() != static_cast<uint64_t>(c.begin) || h.end() != static_cast<uint64_t>(c.end)) {
    return Bad(c, "it is of numbers [", h.begin(), ",", h.end(), "), the partition has [", c.begin, ",", c.end, ")");
  }
  if (const absl::Status fits = c.kind->CheckHeader(c, h, tensors); !fits.ok()) return Bad(c, fits.message());
  if (h.norms().size() > kFrameScalarsBytesMax) return Bad(c, "norms: ", h.norms().size(), " bytes");
  if (h.has_loss_scale() && !IsLossScale(h.loss_scale().scale())) return Bad(c, "loss_scale: ", h.loss_scale().scale());
  if (!h.figures().empty() && !c.keeps_figures())
    return Bad(c, "figures, but these are kept by the job's first partition");
  if (const absl::Status figures = CheckEpochList(h.figures(), c.metrics); !figures.ok())
    return Bad(c, figures.message());
  if (h.sequences().last_sequence_size() != static_cast<int>(c.replicas)) {
    return Bad(c, "sequences: of ", h.sequences().last_sequence_size(), " replicas, the job has ", c.replicas);
  }
  if (c.mode == UpdateMode::kSynchronous) {
    for (uint64_t s : h.sequences().last_sequence()) {
      if (s != h.version()) return Bad(c, "sequences: ", s, " at version ", h.version(), " of a synchronous job");
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t Image::bytes() const {
  size_t n = 0;
  for (const Buffer& t : tensors) n += t.size();
  return n;
}

Image MakeImage(const PartitionConfig& config, const PartitionState& state, const ImageParts& parts) {
  Image image;
  image.header.set_version(state.version);
  image.header.set_generation(config.generation.value);
  image.header.set_begin(static_cast<uint64_t>(config.begin));
  image.header.set_end(static_cast<uint64_t>(config.end));
  image.header.set_norms(state.norms);
  if (config.loss_scale) {
    *image.header.mutable_loss_scale() = state.loss_scale.ToProto();
    image.header.set_previous_loss_scale(state.previous_loss_scale);
  }
  *image.header.mutable_figures() = state.figures;
  for (uint64_t s : state.sequences) image.header.mutable_sequences()->add_last_sequence(s);
  state.contents->AddTo(parts, image);
  return image;
}

PartitionState StateAtRest(const PartitionConfig& config, const v1::PartitionImage& header) {
  PartitionState state;
  state.version = state.image_version = header.version();
  state.contents = config.kind->MakeEmpty();
  state.norms = header.norms();
  if (config.loss_scale) {
    state.loss_scale = LossScale::From(*config.loss_scale, header.loss_scale());
    state.previous_loss_scale =
        IsLossScale(header.previous_loss_scale()) ? header.previous_loss_scale() : state.loss_scale.scale;
  }
  state.figures = header.figures();
  state.sequences.assign(header.sequences().last_sequence().begin(), header.sequences().last_sequence().end());
  return state;
}

PartitionState StateFrom(const PartitionConfig& config, const Image& image) {
  PartitionState state = StateAtRest(config, image.header);
  state.contents = config.kind->MakeFrom(config, image);
  return state;
}

std::vector<Frame> ImageFrames(const PartitionConfig& config, const Image& image, uint64_t request_id) {
  std::vector<Frame> frames;
  for (size_t t = 0; t < image.tensors.size(); ++t) {
    Frame f;
    f.kind = v1::ExchangeFrame::IMAGE;
    f.request_id = request_id;
    f.job = config.job;
    f.partition = config.partition;
    f.generation = config.generation;
    f.version = image.header.version();
    f.dtype = v1::FLOAT32;
    f.tensor = static_cast<uint32_t>(t);
    f.tensors = static_cast<uint32_t>(image.tensors.size());
    if (t == 0) f.image = image.header.SerializeAsString();
    f.payload = image.tensors[t];
    f.payload_total = f.payload.size();
    frames.push_back(std::move(f));
  }
  return frames;
}

absl::StatusOr<std::optional<Image>> ImageReceiver::Add(const PartitionConfig& config, uint64_t client, Frame frame) {
  Image image = std::exchange(image_, {});  // moved back if the frame fits
  if (frame.tensor == 0) {
    image = {};
    if (!image.header.ParseFromString(frame.image)) return Bad(config, "its header is not a PartitionImage");
    CAIRN_RETURN_IF_ERROR(CheckReceived(config, image.header, frame.tensors));
    client_ = client;
    request_id_ = frame.request_id;
    tensors_ = frame.tensors;
  } else if (client != client_ || frame.request_id != request_id_ || frame.tensor != image.tensors.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(config.Name(), ": tensor ", frame.tensor, " of an image that is not being received; begin again"));
  }
  const absl::Status fits = config.kind->CheckTensor(config, frame.tensor, frame.payload.size());
  if (frame.tensors != tensors_ || frame.dtype != v1::FLOAT32 || !fits.ok()) {
    return Bad(config, "tensor ", frame.tensor, " of ", frame.tensors, " has ", frame.payload.size(),
               " bytes of dtype ", static_cast<int>(frame.dtype), "; expected ", tensors_, " tensors",
               fits.ok() ? " of FLOAT32" : absl::StrCat(" of ", fits.message()));
  }
  if (reinterpret_cast<uintptr_t>(frame.payload.data()) % alignof(float) != 0) {
    frame.payload = Buffer::CopyOf(frame.payload.data(), frame.payload.size());
  }
  image.tensors.push_back(std::move(frame.payload));
  if (image.tensors.size() == tensors_) return std::optional<Image>(std::move(image));
  image_ = std::move(image);
  return std::optional<Image>();
}

}  // namespace cairn
