// ExternalDataset: the examples of data.external, which only the job's program has. Each is its own key, that is split
// and index (common/model/example_key.h), and has no label.
//
// Thread rule: as Dataset.
#pragma once

#include "common/data/dataset.h"

namespace cairn {

// external: checked.
std::shared_ptr<const Dataset> MakeExternalDataset(const v1::ExternalData& external);

}  // namespace cairn
