// Implements what brings chunks of a sequence the positions in front of them (kernels/halo/halo.cpp), for
// values of any type with rows by position; add_tails alone computes.
#include <cstring>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "halo/chunks.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> halo_kernels();

namespace {

using Index = std::int64_t;

// Returns the elements of a row, which is of one position.
Index width_of(const Tensor& x) { return x.inner(x.rank - 2); }
Index bytes_of_row(const Tensor& x) { return width_of(x) * size_of(x.dtype); }

// Calls body(row) for all rows of a value.
template <class Body>
void for_rows(const Tensor& x, const KernelContext& context, const Body& body) {
  constexpr Index grain = 64;
  parallel_ranges(*context.workers, x.dim[0] * x.dim[1], grain, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) body(row);
  });
}

// Copies a row, or clears it where there is none to copy.
void copy_row(const Tensor& to, Index row, const Tensor& from, Index other) {
  const auto bytes = static_cast<std::size_t>(bytes_of_row(to));
  if (other < 0)
    std::memset(to.as<char>() + row * bytes_of_row(to), 0, bytes);
  else
    std::memcpy(to.as<char>() + row * bytes_of_row(to), from.as<const char>() + other * bytes_of_row(to),
                bytes);
}

void halo_tails(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::HaloTails> op(args);
  const Tensor &x = op["x"], &tails = op["tails"];
  const HaloChunks c = own_chunks(op);
  for_rows(tails, context, [&](Index row) {
    copy_row(tails, row, x, row / c.reach * c.rows + c.rows - c.reach + row % c.reach);
  });
}

void join_halo(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinHalo> op(args);
  const Tensor &x = op["x"], &halo = op["halo"], &y = op["y"];
  const HaloChunks c = all_chunks(op);
  for_rows(y, context, [&](Index row) {
    const Index chunk = row / (c.reach + c.rows), i = row % (c.reach + c.rows), j = chunk % c.count;
    if (i >= c.reach) return copy_row(y, row, x, chunk * c.rows + i - c.reach);
    const Index from = c.behind(j, -c.distance);
    if (from >= 0) return copy_row(y, row, x, (chunk - j + from + 1) * c.rows - c.reach + i);
    copy_row(y, row, halo, from == HaloChunks::elsewhere ? chunk * c.reach + i : -1);
  });
}

void part_halo(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::PartHalo> op(args);
  const Tensor &y = op["y"], &x = op["x"], &halo = op["halo"];
  const HaloChunks c = own_chunks(op);
  for_rows(y, context, [&](Index row) {
    const Index chunk = row / (c.reach + c.rows), i = row % (c.reach + c.rows);
    if (i < c.reach)
      copy_row(halo, chunk * c.reach + i, y, row);
    else
      copy_row(x, chunk * c.rows + i - c.reach, y, row);
  });
}

template <class T>
void add_tails(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AddTails> op(args);
  const Tensor &x = op["x"], &next = op["tails"], &own = op["own"], &y = op["y"];
  const HaloChunks c = all_chunks(op);
  const Index width = width_of(y);
  for_rows(y, context, [&](Index row) {
    copy_row(y, row, x, row);
    const Index i = row % c.rows - (c.rows - c.reach), chunk = row / c.rows, j = chunk % c.count;
    const Index reader = i < 0 ? HaloChunks::nowhere : c.behind(j, c.distance);
    if (reader == HaloChunks::nowhere) return;
    const Tensor& tails = reader >= 0 ? own : next;
    const Index from = reader >= 0 ? chunk - j + reader : chunk;
    T* to = y.as<T>() + row * width;
    const T* added = tails.as<const T>() + (from * c.reach + i) * width;
    for (Index d = 0; d < width; ++d) store(to[d], load(to[d]) + load(added[d]));
  });
}

template <Kernel kernel, class Op>
Kernel select_moves(const OpShape& shape) {
  return has_chunks(ShapeOf<Op>(shape)) ? kernel : nullptr;
}

Kernel select_add(const OpShape& shape) {
  const ShapeOf<ops::AddTails> s(shape);
  if (!same_type(s, {"x", "tails", "own"}) || !has_chunks(s)) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return add_tails<T>; });
}

}  // namespace

std::vector<KernelDef> halo_kernels() {
  return {{ops::HaloTails::kind, select_moves<halo_tails, ops::HaloTails>},
          {ops::JoinHalo::kind, select_moves<join_halo, ops::JoinHalo>},
          {ops::PartHalo::kind, select_moves<part_halo, ops::PartHalo>},
          {ops::AddTails::kind, select_add}};
}

}  // namespace prun::cpu::PRUN_ISA
