// A small job that every target of the control plane starts from.
#pragma once

#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job.pb.h"

namespace cairn {

// Two dense layers: 16 x 8 + 8 + 8 x 4 + 4 parameters, four partitions of 256 bytes.
inline v1::JobSpec SmallJob(bool asynchronous) {
  v1::JobSpec spec;
  spec.set_name("small");
  spec.mutable_model()->add_layers()->mutable_input()->add_shape(16);
  spec.mutable_model()->add_layers()->mutable_dense()->set_units(8);
  v1::Dense& out = *spec.mutable_model()->add_layers()->mutable_dense();
  out.set_units(4);
  out.set_activation(v1::SOFTMAX);
  spec.mutable_data()->set_path("/data");
  spec.mutable_loss()->set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  spec.add_metrics()->set_kind(v1::Metric::ACCURACY);
  spec.mutable_optimizer()->mutable_sgd()->set_momentum(0.5f);
  spec.set_batch_size(8);
  spec.set_epochs(2);
  spec.set_replicas(2);
  spec.set_partition_bytes(256);
  if (asynchronous) spec.set_strategy(v1::PARAMETER_SERVER);
  return spec;
}

inline v1::DataInfo SmallData() {
  v1::DataInfo data;
  data.set_format(v1::Data::CSV);
  data.set_train_examples(40);
  data.set_validation_examples(8);
  data.set_test_examples(16);
  data.add_example_shape(16);
  data.set_classes(4);
  return data;
}

}  // namespace cairn
