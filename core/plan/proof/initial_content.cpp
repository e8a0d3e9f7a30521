#include "plan/proof/initial_content.hpp"

namespace prun {
namespace {

void put_content(const Plan& plan, Id value, const Address& home, std::int32_t instance, ShadowMemory& memory,
                 std::int64_t version = 0) {
  memory.put(plan.resolve(instance, home), home.bytes, {value, instance, -1, version});
}

// Puts padding on all sides of gradients of steps that overlap.
void put_padding_at(const Plan& plan, Id value, std::int32_t instance, ShadowMemory& memory) {
  Call call;
  call.instance = instance;
  const Address& home = plan.home(value);
  for (int side = 0; side < plan.gradient_sides; ++side)
    memory.put(plan.resolve(call, home, side), home.bytes, {value, instance, -1});
}

// Puts what lies between gradients that no step clears, and behind them.
void put_padding(const Program& program, const Plan& plan, std::int32_t instance, ShadowMemory& memory) {
  for (const Id id : program.segment(plan.instances[instance].segment).values) {
    const Value& value = program.value(id);
    if (value.role == Role::view && value.view && !value.view->is_part() &&
        program.value(value.view->whole).lifetime == ValueLifetime::step)
      put_padding_at(plan, id, instance, memory);
  }
}

void put_lasting(const Program& program, const Plan& plan, const ContentVersions& versions,
                 std::int32_t instance, ShadowMemory& memory) {
  for (Id id : program.segment(plan.instances[instance].segment).values) {
    const auto home = plan.homes.find(id);
    if (home == plan.homes.end() || program.value(id).role == Role::view) continue;
    if (program.value(id).role == Role::fetched) continue;                 // each step makes it anew
    if (program.value(id).age > plan.instances[instance].delay) continue;  // no instance keeps it
    const Region region = home->second.region;
    if (versions.of(id) != Counts::steps && (region == Region::parameter || region == Region::state))
      put_content(plan, id, home->second, instance, memory, -versions.delay_of(id));
  }
}

}  // namespace

void put_initial_content(const Program& program, const Plan& plan, const ContentVersions& versions,
                         ShadowMemory& memory) {
  for (std::size_t i = 0; i < plan.instances.size(); ++i) {
    if (plan.instances[i].receive_stub) continue;
    put_padding(program, plan, static_cast<std::int32_t>(i), memory);
    put_lasting(program, plan, versions, static_cast<std::int32_t>(i), memory);
  }
  // A step takes this over from the one before; the first step may find any content.
  for (Id id : program.segment(program.step_segment()).values)
    if (program.value(id).carried)
      memory.put(plan.resolve(Call{}, plan.home(id), 0), plan.home(id).bytes, {id, 0, -1, -1});
}

}  // namespace prun
