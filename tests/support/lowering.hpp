// Makes plans by hand from a program: for one device that has all kernels itself.
#pragma once

#include "plan/plan_devices.hpp"

namespace prun::test {

inline Lowering lowering_on(DeviceInterface& device) {
  PlanDevice own;
  own.kernel = [&device](std::string_view op) { return OfferedKernel{device.kernel(op), "the device"}; };
  own.threads = 2;
  own.name = "cpu";
  Lowering lowering;
  lowering.devices.push_back(std::move(own));
  return lowering;
}

}  // namespace prun::test
