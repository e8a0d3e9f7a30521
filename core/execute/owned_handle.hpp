// Owns events and stamps of a device, for as long as these live.
#pragma once

#include "prun/device.hpp"

namespace prun {

template <class Handle, auto create, auto destroy>
class OwnedHandle {
 public:
  explicit OwnedHandle(DeviceInterface& device) : device_(device) { raise((device_.*create)(&handle_)); }
  ~OwnedHandle() { (device_.*destroy)(handle_); }
  OwnedHandle(const OwnedHandle&) = delete;
  OwnedHandle& operator=(const OwnedHandle&) = delete;

  Handle handle() const { return handle_; }

 private:
  DeviceInterface& device_;
  Handle handle_ = nullptr;
};

using OwnedEvent = OwnedHandle<QueueEvent, &DeviceInterface::create_event, &DeviceInterface::destroy_event>;
using OwnedStamp = OwnedHandle<Stamp, &DeviceInterface::create_stamp, &DeviceInterface::destroy_stamp>;

}  // namespace prun
