// A small legacy .h5 file of Keras: the seed for the fuzz target of such files.
#pragma once

#include <hdf5.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/formats/hdf5_handle.h"
#include "common/model/graph.h"
#include "tests/unit/data/data_files.h"

namespace cairn {

// As Keras 2 saves a model: names as attributes, arrays below their layers' groups.
inline std::string LegacyH5(const Graph& graph, const std::string& config) {
  const TempFolder temp;
  const Hdf5Handle file(H5Fcreate((temp / "m.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  const Hdf5Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.get(), 1);
  const auto texts = [](hid_t at, const char* name, const std::vector<std::string>& values) {
    size_t size = 1;
    for (const std::string& value : values) size = std::max(size, value.size());
    const hsize_t count = values.size();
    std::string bytes;
    for (const std::string& value : values) bytes += value + std::string(size - value.size(), '\0');
    const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type.get(), size);
    const bool scalar = std::string(name) == "model_config";
    const Hdf5Handle space(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr), H5Sclose);
    const Hdf5Handle made(H5Acreate2(at, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    CAIRN_CHECK(H5Awrite(made.get(), type.get(), bytes.data()) >= 0, "an attribute");
  };
  texts(file.get(), "model_config", {config});
  const Hdf5Handle root(H5Gcreate2(file.get(), "model_weights", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  std::vector<std::string> layers;
  for (const Node& node : graph.nodes()) {
    if (node.variables.empty()) continue;
    layers.push_back(node.name);
    const Hdf5Handle group(H5Gcreate2(root.get(), node.name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
    std::vector<std::string> names;
    for (const int id : node.variables) {
      const Variable& v = graph.variables()[static_cast<size_t>(id)];
      names.push_back(v.name + ":0");
      const std::vector<hsize_t> dims(v.shape.begin(), v.shape.end());
      const std::vector<float> numbers(static_cast<size_t>(v.size), 0.5f);
      const Hdf5Handle space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose);
      const Hdf5Handle array(H5Dcreate2(group.get(), names.back().c_str(), H5T_IEEE_F32LE, space.get(), links.get(),
                                        H5P_DEFAULT, H5P_DEFAULT),
                             H5Dclose);
      CAIRN_CHECK(H5Dwrite(array.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()) >= 0, "write");
    }
    texts(group.get(), "weight_names", names);
  }
  texts(root.get(), "layer_names", layers);
  H5Fflush(file.get(), H5F_SCOPE_GLOBAL);
  return ReadFile(temp / "m.h5");
}

}  // namespace cairn
