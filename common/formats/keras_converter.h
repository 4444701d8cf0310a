// KerasConverter: converts Keras' description of a model to Cairn's (keras_model.h).
//
// Used once, on one thread; the JSON must outlive it. A nested model is flattened: its layers are in the list of the
// whole model, which says in `submodels` whose they are. A layer that is called again becomes a separate layer, which
// shares the first one's variables.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/formats/keras_call.h"
#include "common/formats/keras_masks.h"
#include "common/formats/keras_model.h"
#include "common/formats/keras_order.h"
#include "common/formats/keras_scalars.h"
#include "common/formats/keras_states.h"
#include "common/formats/keras_submodels.h"
#include "common/model/graph.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

class KerasConverter {
 public:
  absl::StatusOr<KerasModel> Convert(const Json& root);

 private:
  using Names = std::vector<std::string>;

  // A layer's entry in the list of its model.
  struct Entry {
    const Json* json = nullptr;
    std::string name, type, module;
    const Json* config = nullptr;
    std::string path;
    const Json* call = nullptr;      // of an operation
    std::string class_before_steps;  // kClassBeforeSteps; empty: it has none
  };

  // ---- keras_model.cc ----
  // Appends the layers of a model that takes `inputs`; nullopt: of the whole model, which has input layers of its own.
  // Returns the names of the layers whose outputs are the model's.
  absl::StatusOr<Names> ConvertModel(const Json& model, const std::string& path, const std::optional<Names>& inputs,
                                     int nesting);
  static absl::StatusOr<std::vector<Entry>> ReadEntries(const Json& list);
  // Where the entry's weights are. Asked for in the order of the container's layers.
  static std::string PathOf(const Entry& entry, KerasContainer& container);
  absl::StatusOr<Names> ConvertSequential(const Json& model, std::vector<Entry>& entries, const std::string& path,
                                          const std::optional<Names>& inputs, int nesting);
  absl::Status AppendImpliedInput(const Json& model, const Entry& first);
  // Returns the names of the layers whose outputs represent this one's.
  absl::StatusOr<Names> Append(const Entry& entry, const KerasCall& call, int nesting);
  absl::StatusOr<Names> AppendModel(const Entry& entry, const KerasCall& call, int nesting);
  // ---- keras_parts.cc: layers that become several ----
  // Of a layer that takes tensors of shape (), which are [] in shapes_: UseOfScalars, and kShape of one that does not.
  absl::StatusOr<KerasScalarUse> ScalarsOf(const Entry& entry, const KerasCall& call, v1::Layer* layer);
  // After the layer `name` was appended. Returns the name of the layer whose output is Keras' of the entry.
  std::string AppendScalarPart(const Entry& entry, const std::string& name, KerasScalarUse use);
  // A Softmax over several axes, from 1. Returns the name of the layer that gives it.
  absl::StatusOr<std::string> AppendSoftmax(const Entry& entry, const KerasCall& call, std::vector<int> axes);
  // Errors: the layer that gives the input, or one before it, is not valid; that one is named.
  absl::StatusOr<Shape> ShapeOf(const Entry& entry, const std::string& input) const;
  // Refuses a join of inputs with different numbers of axes in a TimeDistributed of a model: Keras adds the axes that
  // one lacks in front of a step, and Cairn would in front of all steps.
  absl::Status CheckStepJoin(const Entry& entry, const KerasCall& call) const;
  std::string AppendPart(const Entry& entry, const std::string& input, v1::Layer part);
  // ---- keras_applications.cc ----
  absl::StatusOr<Names> AppendScaledSum(const Entry& entry, const KerasCall& call, v1::Layer scaled);
  absl::Status CheckLayerScale(const Entry& entry, const KerasCall& call) const;

  // An operation, once for each of its outputs that are used, or once.
  absl::StatusOr<Names> AppendOutputs(const Entry& entry, const KerasCall& call);
  absl::StatusOr<std::string> AppendOperation(const Entry& entry, const KerasCall& call, int output);
  static void SetInputs(const KerasCall& call, v1::Layer* layer);
  // An unused name for the layer's next call, or another part of it.
  std::string NameOfCall(const std::string& layer, const char* part = "call");
  void Push(v1::Layer layer, const std::string& path);
  void PushAt(v1::Layer layer, const std::string& path);
  void NoteShape(const v1::Layer& layer);
  absl::Status CheckGraph() const;
  absl::Status CheckMasks(const Graph& graph) const;

  // ---- keras_functional.cc ----
  struct Calls {
    std::vector<size_t> entries;  // by call: its layer
    Names names;                  // KerasTensorName
    std::vector<KerasCall> calls;
    std::vector<size_t> order;  // inputs before their users
  };
  static absl::StatusOr<std::string> MadeOf(const Entry& user, const std::string& tensor,
                                            const std::map<std::string, std::string>& names);
  static bool HasSeveralOutputs(const Entry& entry);  // as a split
  // The outputs of a recurrent layer that gives several (keras_states.h), which is the last layer so far.
  absl::StatusOr<Names> AppendStates(const Entry& entry, const KerasCall& call, const KerasStatePlan& plan);
  absl::StatusOr<Names> ConvertFunctional(const Json& config, std::vector<Entry>& entries, const std::string& path,
                                          const std::optional<Names>& inputs, int nesting);
  static absl::StatusOr<Calls> ReadCalls(const std::vector<Entry>& entries, const KerasFirstCalls& firsts);
  static void FindFirstCalls(const Json& config, const std::vector<Entry>& entries, KerasFirstCalls* in_nodes,
                             KerasFirstCalls* in_outputs);
  absl::Status NoteMasks(const Entry& entry, const KerasCall& call, const std::map<std::string, std::string>& names,
                         KerasMasks* masks);
  static void NameContainers(const Calls& calls, const Names& outputs, const std::string& path,
                             std::vector<Entry>& entries);
  // Appends the input layers first, in the order of the model's inputs.
  absl::Status AppendInputs(const std::vector<Entry>& entries, const Names& input_names,
                            std::map<std::string, std::string>* names);

  // ---- keras_head.cc: layers at the model's input that augment the data ----
  absl::StatusOr<std::string> Augment(const Entry& entry, const KerasCall& call, const v1::Augmentation& augmentation,
                                      bool moves_pixels_only, bool inference);
  // The cropped image becomes the model's input; the examples keep their size. False: the RandomCrop crops
  // nothing.
  absl::StatusOr<bool> Crop(const Entry& entry, const v1::RandomCrop& crop, bool inference);
  absl::Status CheckHead(const Entry& entry, const KerasCall& call, bool moves_pixels_only) const;
  // Refuses a layer that uses the data before an augmentation: it would see other values than in Keras.
  absl::Status CheckNotBeforeAugmentation(const Entry& entry, const std::string& input) const;

  struct NamedAxis {
    int layer, axis;
    std::string type;
  };

  // For NameOfCall.
  struct PartNames {
    std::set<std::string> given;         // to the file's own layers
    std::map<std::string, int> repeats;  // by layer: calls after the first, and parts
  };

  // A layer that the file calls with a mask of its input.
  struct NamedMask {
    std::string layer, type, argument, input;
    std::set<std::string> makers;  // the layers whose mask it is; none: it leaves out no step
  };

  KerasModel result_;
  std::map<std::string, Shape> shapes_;      // known shapes of the layers so far; []: keras_scalars.h
  std::map<const Json*, std::string> made_;  // by entry: the layer of its first call
  KerasSubmodels submodels_;
  PartNames part_names_;
  std::vector<NamedAxis> axes_;
  std::vector<NamedMask> masks_;
  Names unmasked_;          // layers whose inputs may have no mask
  std::string head_;        // the layer whose output is still the data: the input, or a Rescaling of it
  std::string head_keras_;  // what Keras calls that output: the last augmentation
  int appended_ = 0;        // calls so far, of models too
  int frozen_ = 0;          // enclosing models that are not trained
  int inference_ = 0;       // enclosing models that are called with training=False
  bool rescaled_ = false;
  bool head_used_ = false;  // by a layer that is not part of the head
};

}  // namespace cairn
