// CheckpointContents: what a checkpoint is made of, and its files, wherever they are written.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/formats/safetensors.h"
#include "common/model/graph.h"
#include "common/tensor/buffer.h"
#include "worker/checkpoint/checkpoint_manifest.h"

namespace cairn {

struct CheckpointContents {
  CheckpointManifest manifest;  // files, library_version and written_unix_ms are filled in by the writer
  std::shared_ptr<const Graph> graph;
  Buffer values;              // float32, the whole parameter space
  std::vector<Buffer> slots;  // the same for each of SlotNames(optimizer)
};

// The tensors of kModelFile and of kOptimizerFile; they refer to the contents.
std::vector<SafetensorView> ModelTensors(const CheckpointContents& contents);
std::vector<SafetensorView> OptimizerTensors(const CheckpointContents& contents);
// What both files say of themselves.
std::map<std::string, std::string> TensorsMetadata(const CheckpointManifest& manifest);

// Says by which program and when it was written.
void StampManifest(int64_t now_unix_ms, CheckpointManifest& manifest);

}  // namespace cairn
