// Makes work of launches, once, when a call's launches are bound to a queue.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "branches.hpp"
#include "libraries.hpp"
#include "queue.hpp"

namespace prun::cuda {

class OpBinder {
 public:
  OpBinder(const OpChoices& choices, Libraries& libraries);

  // Returns null where there is no kernel for the op.
  const KernelDef* kernel(std::string_view op) const;
  // Binds all launches of a call, some of them together. The queue's stream may be used to try things.
  std::vector<NamedWork> bind(CudaQueue& queue, Launches launches);

 private:
  // Is the work of launches that stand together and of one in front of them.
  struct Joined {
    std::size_t first, count, in_front;
    NamedWork work;
  };
  std::vector<Joined> bind_joined(CudaQueue& queue, Launches launches);
  bool bind_as_one(CudaQueue& queue, const Fusion& fusion, Launches launches, std::vector<NamedWork>& works);
  std::size_t bind_first(CudaQueue& queue, Launches left, std::vector<NamedWork>& works);
  std::size_t mergeable(Launches launches) const;
  NamedWork bind_work(CudaQueue& queue, Launches launches);
  template <class Bind>
  NamedWork named_work(std::string name, Launches launches, Bind bind) const;
  bool adds_to_sums(Launches launches) const;

  Libraries& libraries_;
  std::map<std::string, DeviceOp, std::less<>> ops_;
  std::vector<Fusion> fusions_ = fusions();
};

}  // namespace prun::cuda
