// KerasSubmodels: the models inside a model while it is converted: whose layers are being appended, and names that tell
// equal ones apart.
//
// Used by one thread; the JSON must outlive it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cairn/v1/model.pb.h"
#include "common/formats/keras_call.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

class KerasSubmodels {
 public:
  // A layer of the whole model, which keeps its name.
  void Reserve(const std::string& name) { taken_.insert(name); }
  // The name in the whole model of an entry of the model that is being appended. It gets that model's before its own
  // where another layer has it.
  std::string NameApart(const Json* entry, const std::string& name);
  // Layers that are appended between the two are those of a call of this model. name: NameApart of its entry.
  void Enter(const Json& entry, const std::string& name, const KerasCall& call);
  void Leave(const std::vector<std::string>& outputs);
  // The model whose layers are being appended; "": the whole model.
  std::string current() const { return within_.empty() ? "" : submodels_[within_.back()].name(); }
  // Adds the submodels to the model: those that have layers. None of them, if one cannot be kept as such: a call of it
  // differs from its first one.
  void Finish(v1::Model* model) const;

 private:
  std::vector<v1::Submodel> submodels_;
  std::map<const Json*, size_t> by_entry_;
  std::map<const Json*, std::string> apart_;
  std::set<std::string> taken_;
  std::vector<size_t> within_;
};

}  // namespace cairn
