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
  std::vector<Joined> joined = bind_joined(queue, launches);
  const auto next = [&](std::size_t from) {
    std::size_t at = launches.size();
    for (const Joined& one : joined)
      for (const std::size_t place : {one.first, one.in_front})
        if (place >= from) at = std::min(at, place);
    return at;
  };
  for (std::size_t at = 0; at < launches.size();) {
    const auto begins = std::ranges::find(joined, at, &Joined::first);
    if (begins != joined.end()) {
      works.push_back(std::move(begins->work));
      at += begins->count;
    } else if (std::ranges::find(joined, at, &Joined::in_front) != joined.end()) {
      ++at;
    } else {
      at += bind_first(queue, launches.subspan(at, next(at) - at), works);
    }
  }
  return works;
}

// Binds launches with one in front of them that joins them, if it may wait for them. What stands between is
// bound as if that one were not there.
std::vector<OpBinder::Joined> OpBinder::bind_joined(CudaQueue& queue, Launches launches) {
  std::vector<Joined> all;
  const auto bind = [&](const Fusion& fusion, std::size_t first, std::size_t count, std::size_t in_front) {
    std::vector<Launch> some(launches.begin() + static_cast<std::ptrdiff_t>(first),
                             launches.begin() + static_cast<std::ptrdiff_t>(first + count));
    some.push_back(launches[in_front]);
    some.back().args.workspace = nullptr;
    some.back().args.workspace_bytes = 0;
    std::vector<NamedWork> works;
    if (!bind_as_one(queue, fusion, some, works)) return;
    PRUN_CHECK(!works.front().bind_to, "work that would be bound again, of launches that are gone");
    all.push_back({first, count, in_front, std::move(works.front())});
  };
  const auto taken = [&](std::size_t in_front) {
    return std::ranges::find(all, in_front, &Joined::in_front) != all.end();
  };
  for (std::size_t first = 0; first < launches.size(); ++first)
    for (const Fusion& fusion : fusions_) {
      const std::size_t count = fusion.joins ? fusion.matches(launches.subspan(first)) : 0;
      std::size_t last = count > 0 ? first : 0;  // behind the nearest that joins
      while (last > 0 && !fusion.joins(launches.subspan(first, count), launches[last - 1])) --last;
      if (last > 0 && !taken(last - 1) && may_run_last(launches.subspan(last - 1, first - last + 1)))
        bind(fusion, first, count, last - 1);
    }
  return all;
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

// Returns false where memory or a library does not let them be one.
bool OpBinder::bind_as_one(CudaQueue& queue, const Fusion& fusion, Launches launches,
                           std::vector<NamedWork>& works) {
  if (!may_be_one(launches, fusion.row_by_row)) return false;
  const auto bind = [this, &fusion, &queue](Launches some) {
    return fusion.bind(some, libraries_, queue.stream());
  };
  try {
    const std::string name = std::string(launches[0].op.view()) + " + " + std::string(launches[1].op.view());
    works.push_back(named_work(name, launches, bind));
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return false;
  }
}

// Makes one piece of work of these launches, from the first on. Returns how many it took.
std::size_t OpBinder::bind_first(CudaQueue& queue, Launches left, std::vector<NamedWork>& works) {
  for (const Fusion& fusion : fusions_)
    if (const std::size_t count = fusion.matches(left);
        count > 0 && bind_as_one(queue, fusion, left.first(count), works))
      return count;
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
