// Implements send_rows, send_choices, return_rows and count_rows. A part of the experts and a sequence are
// one piece of work; where positions add their rows up, each looks at all parts, in order.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "prun/op.hpp"
#include "prun/ops/rows.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// Holds the choices of a launch, in sequences.
struct Chosen {
  const std::int32_t* index;
  std::int64_t sequences, positions, choices, parts, rows, of_part;  // experts of each part

  template <class Op>
  static Chosen of(const ArgsOf<Op>& op) {
    const Tensor& index = op["index"];
    return {index.as<const std::int32_t>(),
            index.dim[0],
            index.dim[1],
            index.dim[2],
            op.integer("parts"),
            op.integer("rows"),
            op.integer("experts") / op.integer("parts")};
  }

  const std::int32_t* at(std::int64_t position) const { return index + position * choices; }
  bool is_in(std::int32_t expert, std::int64_t part) const { return expert >= 0 && expert / of_part == part; }
  bool has(std::int64_t position, std::int64_t part) const {
    const std::int32_t* const own = at(position);
    return std::any_of(own, own + choices, [&](std::int32_t expert) { return is_in(expert, part); });
  }
  // Calls body(number, position) for the positions of a sequence that have a choice in the part, numbered
  // from 0, and returns how many there are.
  template <class Body>
  std::int64_t each(std::int64_t part, std::int64_t sequence, const Body& body) const {
    std::int64_t number = 0;
    for (std::int64_t p = sequence * positions; p < (sequence + 1) * positions; ++p)
      if (has(p, part)) body(number++, p);
    return number;
  }
  // Does so for those that have a row, on all workers: body(row, position), then rest(first empty row, end).
  template <class Body, class Rest>
  void each_row(const Workers& workers, const Body& body, const Rest& rest) const {
    parallel(workers, parts * sequences, [&](std::int64_t task) {
      const std::int64_t part = task / sequences, first = task * rows;
      const std::int64_t used = each(part, task % sequences, [&](std::int64_t number, std::int64_t position) {
        if (number < rows) body(first + number, position, part);
      });
      rest(first + std::min(used, rows), first + rows);
    });
  }
};

template <class T>
void send_rows(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SendRows> op(args);
  const T* const x = op["x"].as<const T>();
  T* const to = op["rows"].as<T>();
  const std::int64_t hidden = op["x"].dim[2];
  Chosen::of(op).each_row(
      *context.workers,
      [&](std::int64_t row, std::int64_t position, std::int64_t) {
        std::copy_n(x + position * hidden, hidden, to + row * hidden);
      },
      [&](std::int64_t begin, std::int64_t end) { std::fill(to + begin * hidden, to + end * hidden, T{}); });
}

template <class C>
void send_choices(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SendChoices> op(args);
  const Chosen chosen = Chosen::of(op);
  const C* const weight = op["weight"].as<const C>();
  std::int32_t* const row_index = op["row_index"].as<std::int32_t>();
  C* const row_weight = op["row_weight"].as<C>();
  const std::int64_t k = chosen.choices;
  chosen.each_row(
      *context.workers,
      [&](std::int64_t row, std::int64_t position, std::int64_t part) {
        for (std::int64_t c = 0; c < k; ++c) {
          const std::int32_t expert = chosen.at(position)[c];
          const bool own = chosen.is_in(expert, part);
          row_index[row * k + c] = own ? expert : -1;
          row_weight[row * k + c] = own ? weight[position * k + c] : C(0);
        }
      },
      [&](std::int64_t begin, std::int64_t end) {
        std::fill(row_index + begin * k, row_index + end * k, -1);
        std::fill(row_weight + begin * k, row_weight + end * k, C(0));
      });
}

// Numbers the row that each position has in each part, or -1.
void find_rows(const Chosen& chosen, const Workers& workers, std::int32_t* row_of) {
  parallel(workers, chosen.parts * chosen.sequences, [&](std::int64_t task) {
    const std::int64_t part = task / chosen.sequences, sequence = task % chosen.sequences;
    for (std::int64_t p = sequence * chosen.positions; p < (sequence + 1) * chosen.positions; ++p)
      row_of[p * chosen.parts + part] = -1;
    chosen.each(part, sequence, [&](std::int64_t number, std::int64_t position) {
      if (number < chosen.rows)
        row_of[position * chosen.parts + part] = static_cast<std::int32_t>(task * chosen.rows + number);
    });
  });
}

// Adds the rows of one position up, in the order of parts.
template <class T>
void add_up(const T* rows, const std::int32_t* row, std::int64_t parts, std::int64_t hidden, T* y) {
  constexpr std::int64_t width = 256;
  for (std::int64_t begin = 0; begin < hidden; begin += width) {
    const std::int64_t n = std::min(width, hidden - begin);
    Compute<T> sum[width] = {};
    for (std::int64_t part = 0; part < parts; ++part) {
      if (row[part] < 0) continue;
      const T* const from = rows + row[part] * hidden + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) sum[i] += load(from[i]);
    }
    for (std::int64_t i = 0; i < n; ++i) store(y[begin + i], sum[i]);
  }
}

template <class C>
void take_numbers(const Chosen& chosen, const C* of_rows, const std::int32_t* row, std::int64_t position,
                  C* numbers) {
  for (std::int64_t c = 0; c < chosen.choices; ++c) {
    const std::int32_t expert = chosen.at(position)[c];
    const std::int64_t part = expert < 0 ? chosen.parts : expert / chosen.of_part;
    const std::int32_t at = part < chosen.parts ? row[part] : -1;
    numbers[position * chosen.choices + c] = at < 0 ? C(0) : of_rows[at * chosen.choices + c];
  }
}

template <class T>
void return_rows(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ReturnRows> op(args);
  using C = Compute<T>;
  const Chosen chosen = Chosen::of(op);
  const std::int64_t hidden = op["rows"].dim[3], all = chosen.sequences * chosen.positions;
  const T* const rows = op["rows"].as<const T>();
  const C* const of_rows = op["row_numbers"].as<const C>();
  T* const y = op["y"].as<T>();
  C* const numbers = op["numbers"].as<C>();
  std::int32_t* const row_of = Scratch(args.workspace).take<std::int32_t>(all * chosen.parts);
  find_rows(chosen, *context.workers, row_of);
  parallel_ranges(*context.workers, all, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int32_t* const own = row_of + p * chosen.parts;
      add_up(rows, own, chosen.parts, hidden, y + p * hidden);
      if (numbers) take_numbers(chosen, of_rows, own, p, numbers);
    }
  });
}

void count_rows(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::CountRows> op(args);
  const Chosen chosen = Chosen::of(op);
  std::int64_t most = 0;
  for (std::int64_t part = 0; part < chosen.parts; ++part)
    for (std::int64_t sequence = 0; sequence < chosen.sequences; ++sequence)
      most = std::max(most, chosen.each(part, sequence, [](std::int64_t, std::int64_t) {}));
  double* const needed = op["needed"].as<double>() + 2 * args.layer;
  const double mean = op.real("mean");
  needed[0] = std::max(needed[0], static_cast<double>(most) / mean);
  needed[1] = std::max(needed[1], static_cast<double>(chosen.rows) / mean);
}

Kernel select_send_rows(const OpShape& shape) {
  const ShapeOf<ops::SendRows> s(shape);
  if (!same_type(s, {"x", "rows"}) || s["index"].dtype != DType::i32) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return send_rows<T>; });
}

Kernel select_send_choices(const OpShape& shape) {
  const ShapeOf<ops::SendChoices> s(shape);
  if (!same_type(s, {"index", "row_index"}) || !same_type(s, {"weight", "row_weight"}) ||
      s["index"].dtype != DType::i32)
    return nullptr;
  return choose_state(s["weight"].dtype, []<class C>() -> Kernel { return send_choices<C>; });
}

Kernel select_return_rows(const OpShape& shape) {
  const ShapeOf<ops::ReturnRows> s(shape);
  const DType type = s["rows"].dtype;
  for (const OperandShape& numbers : {s["row_numbers"], s["numbers"]})
    if (numbers.present && numbers.dtype != OpShape::statistics(type)) return nullptr;
  if (!same_type(s, {"rows", "y"}) || s["index"].dtype != DType::i32) return nullptr;
  return choose_value(type, []<class T>() -> Kernel { return return_rows<T>; });
}

Kernel select_count_rows(const OpShape& shape) {
  const ShapeOf<ops::CountRows> s(shape);
  return s["index"].dtype == DType::i32 && s["needed"].dtype == DType::f64 ? count_rows : nullptr;
}

std::int64_t return_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::ReturnRows> s(shape);
  const OperandShape &rows = s["rows"], &index = s["index"];
  Scratch scratch;
  scratch.take<std::int32_t>(index.dims[0].extent * index.dims[1].extent * rows.dims[0].extent);
  return scratch.bytes();
}

}  // namespace

std::vector<KernelDef> rows_kernels();
std::vector<KernelDef> rows_kernels() {
  return {{ops::SendRows::kind, select_send_rows},
          {ops::SendChoices::kind, select_send_choices},
          {ops::ReturnRows::kind, select_return_rows, return_workspace},
          {ops::CountRows::kind, select_count_rows}};
}

}  // namespace prun::cpu::PRUN_ISA
