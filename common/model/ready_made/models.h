// The builders that MakeReadyMade calls. It checks input_shape and classes.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/v1/model.pb.h"

namespace cairn {

v1::Model MakeMlp(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeMnistCnn(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeLenet(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeBeansCnn(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeResnet18(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeResnet34(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeResnet50(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeTutorialResnet(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeMobilenetV2(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeDensenet121(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeEfficientNetB0(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeEfficientNetV2S(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeConvNeXtTiny(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeMobileNetV3Large(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeMobileNetV3Small(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeVitTiny(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeVitBase(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeGptMini(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeLstmText(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeXception(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeUnet(const std::vector<int32_t>& input_shape, int32_t classes);
v1::Model MakeVgg16(const std::vector<int32_t>& input_shape, int32_t classes);

}  // namespace cairn
