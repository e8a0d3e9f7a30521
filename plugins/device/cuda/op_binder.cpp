#include "op_binder.hpp"

#include <algorithm>
#include <utility>

#include "fp8_work.hpp"
#include "prun/error.hpp"

namespace prun::cuda {

OpBinder::OpBinder(const OpChoices& choices, Libraries& libraries) : libraries_(libraries) {
  for (DeviceOp& op : all_device_ops(choices)) {
    const std::string name = op.def.op;
    PRUN_CHECK(ops_.emplace(name, std::move(op)).second, "two kernels for op ", name);
  }
}

const KernelDef* OpBinder::kernel(std::string_view op) const {
  const auto found = ops_.find(op);
  return found == ops_.end() ? nullptr : &found->second.def;
}

std::vector<NamedWork> OpBinder::bind(CudaQueue& queue, Launches launches) {
  std::vector<NamedWork> works;
  for (Launches left = launches; !left.empty();) left = left.subspan(bind_first(queue, left, works));
  return works;
}

template <class Bind>
NamedWork OpBinder::named_work(std::string name, Launches launches, Bind bind) const {
  NamedWork named{std::move(name), launches.front().args.layer, bind(launches)};
  named.captures = named.work.captures();
  named.kind = kind_of(launches);
  // Ops of one shape may multiply in fp8 in some layers and not in others.
  for (const Launch& launch : launches)
    if (multiplies_in_fp8(launch)) named.kind += "fp8\n";
  named.touches = touches_of(launches, true);
  if (!adds_to_sums(launches)) return named;
  named.own_touches = touches_of(launches, false);
  named.bind_to = [bind, launches](void* workspace) {
    std::vector<Launch> moved(launches.begin(), launches.end());
    for (Launch& launch : moved)
      if (launch.args.workspace) launch.args.workspace = workspace;
    return bind(moved);
  };
  return named;
}

// Makes one piece of work of these launches, from the first on. Returns how many it took.
std::size_t OpBinder::bind_first(CudaQueue& queue, Launches left, std::vector<NamedWork>& works) {
  for (const Fusion& fusion : fusions_)
    if (const std::size_t count = fusion.matches(left);
        count > 0 && may_be_one(left.first(count), fusion.row_by_row))
      try {
        const auto bind = [this, &fusion, &queue](Launches some) {
          return fusion.bind(some, libraries_, queue.stream());
        };
        const std::string name = std::string(left[0].op.view()) + " + " + std::string(left[1].op.view());
        works.push_back(named_work(name, left.first(count), bind));
        return count;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported) throw;
      }
  const Launches together = left.first(mergeable(left));
  works.push_back(bind_work(queue, together));
  return together.size();
}

// Returns how many of these launches, from the first on, become one piece of work.
std::size_t OpBinder::mergeable(Launches launches) const {
  const auto op = ops_.find(launches.front().op.view());
  if (launches.front().kernel != runs_when_bound || !op->second.merges) return 1;
  std::size_t n = 1;
  while (n < launches.size() && launches[n].op.view() == launches.front().op.view() &&
         op->second.merges(launches.front(), launches[n]))
    ++n;
  return n;
}

NamedWork OpBinder::bind_work(CudaQueue& queue, Launches launches) {
  const std::string name(launches.front().op.view());
  PRUN_CHECK(launches.front().kernel, "op ", name);
  if (launches.front().kernel != runs_when_bound)
    return named_work(name, launches, [](Launches one) -> Work {
      return [kernel = one.front().kernel, args = one.front().args](Stream stream) {
        kernel(args, {nullptr, stream});
      };
    });
  const DeviceOp& op = ops_.at(name);
  return named_work(name, launches,
                    [this, &op, &queue](Launches some) { return op.bind(some, libraries_, queue.stream()); });
}

// Says whether launches add to sums, rather than make what later works need, within the side workspace.
bool OpBinder::adds_to_sums(Launches launches) const {
  return std::ranges::all_of(launches, [&](const Launch& launch) {
    return ops_.find(launch.op.view())->second.def.writes_first != 0 &&
           launch.args.workspace_bytes <= SideStream::workspace_bytes;
  });
}

}  // namespace prun::cuda
