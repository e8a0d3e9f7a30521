// A strategy: PowerSGD (Vogels et al. 2019). The ranks of an axis sum gradients of matrices in a low rank.
// The rest is added to the next step's gradient (error feedback), and the sketch of one step
// begins the next (warm start). With g_i the gradient and e_i the error of rank i, M = sum over i of (g_i +
// e_i):
//   P = orthonormal(M Q),  Q = M^T P,  gradient = P Q^T,  sum over i of e_i = M - P Q^T
// The sums of ranks are in P and Q alone, so that these travel, and the matrices themselves do not.
#include <algorithm>
#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace {

using namespace prun;

class PowerSgd final : public Strategy {
 public:
  explicit PowerSgd(const Options& options) : axis_(options.text("axis")), rank_(options.integer("rank")) {}

  void apply(Phase, ProgramRef program) override {
    const std::vector<Matrix> matrices = matrices_of(program);
    if (matrices.empty())
      throw_error(ErrorCode::bad_input, "no trained parameter is a matrix with more than ", rank_,
                  " rows and columns; choose a lower rank");
    for (const Matrix& matrix : matrices) compress(program, matrix);
  }

 private:
  // Describes a trained matrix: `rows` of its dimensions number rows, the others columns.
  struct Matrix {
    Id parameter = none, gradient = none;
    std::int32_t rows = 0;
    std::vector<Lies> lies;  // how the gradient lies before it is summed
  };

  std::vector<Matrix> matrices_of(ProgramRef program) const {
    const ProgramView view = program.view();
    std::vector<Matrix> list;
    for (const ProgramView::Value& value : view.values) {
      if (value.info.role != Role::gradient) continue;
      for (const ProgramView::Value& owner : view.values) {
        if (owner.info.role != Role::parameter || owner.info.segment != value.info.segment ||
            value.info.name.view() != std::string(owner.info.name.view()) + ".gradient")
          continue;
        const std::int32_t columns = program.matrices(owner.id).columns;
        const Matrix matrix{
            owner.id, value.id, owner.info.rank - columns, {value.lies.begin(), value.lies.end()}};
        if (columns > 0 && extent(owner.info, 0, matrix.rows) > rank_ &&
            extent(owner.info, matrix.rows, owner.info.rank) > rank_)
          list.push_back(matrix);
      }
    }
    return list;
  }

  static std::int64_t extent(const ValueInfo& info, std::int32_t from, std::int32_t to) {
    std::int64_t product = 1;
    for (std::int32_t d = from; d < to; ++d) product *= info.dims[d].extent;
    return product;
  }

  void compress(ProgramRef program, const Matrix& matrix) const {
    const ValueInfo info = program.value(matrix.gradient), weight = program.value(matrix.parameter);
    const Segment segment(program, info.segment);
    const std::string name(weight.name.view());
    std::vector<Dim> columns = {{"sketch", rank_}};
    columns.insert(columns.end(), info.dims + matrix.rows, info.dims + info.rank);
    const std::string error_name = name + ".error", sketch_name = name + ".sketch";
    const Lies summands{axis_, PlacementKind::partial};
    const Id error = segment.state({.name = error_name,
                                    .dims = {info.dims, static_cast<std::uint64_t>(info.rank)},
                                    .typed = true,
                                    .dtype = info.dtype,
                                    .like = matrix.parameter,
                                    .lies = {&summands, 1},
                                    .on_resize = OnResize::sum});
    const Id sketch = segment.state({.name = sketch_name,
                                     .dims = {columns.data(), columns.size()},
                                     .typed = true,
                                     .dtype = info.dtype,
                                     .init = normal(1),
                                     .like = matrix.parameter});
    const Id behind = take_sum_out(segment, matrix);
    const auto insert = [&](const char* kind, std::initializer_list<Id> inputs) {
      return segment.insert(FunctionKind::reduce, behind, kind, inputs, 1)[0];
    };
    const Id whole = insert("add", {matrix.gradient, error});
    const Id p = summed(segment, behind, insert("sketch_rows", {whole, sketch}), matrix, true, false);
    const Id gram = summed(segment, behind, insert("gram", {p}), matrix, false, true);
    const Id basis = insert("orthonormal", {p, gram});
    const Id q = summed(segment, behind, insert("sketch_columns", {whole, basis}), matrix, true, true);
    segment.insert_on(FunctionKind::reduce, behind, "product", {basis, q, matrix.gradient});
    segment.insert(FunctionKind::reduce, behind, "keep_finite", {whole, matrix.gradient, error}, 0);
    segment.insert(FunctionKind::reduce, behind, "keep_finite", {q, none, sketch}, 0);
  }

  // Takes out the op that sums the gradient over the axis, if there is one. Returns the op in front of which
  // all other axes have summed it; none: the end.
  Id take_sum_out(const Segment& segment, const Matrix& matrix) const {
    const std::vector<Id> ops = segment.operations(FunctionKind::reduce);
    Id sum = none, behind = none;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const OpInfo info = segment.program().op(ops[i]);
      if (std::find(info.operands.begin(), info.operands.end(), matrix.gradient) == info.operands.end())
        continue;
      if (!info.def->exchange)
        throw_error(ErrorCode::unsupported,
                    "gradients are summed in another type than they are kept in; leave "
                    "precision.reduce out");
      behind = i + 1 < ops.size() ? ops[i + 1] : none;
      if (segment.program().attr(ops[i], "axis") == segment.program().axis(axis_).number) sum = ops[i];
    }
    if (sum != none) segment.program().erase(sum);
    return behind;
  }

  // Sums a value over the axis, if ranks have summands, and over axes that split rows or columns, if those
  // are summed over.
  Id summed(const Segment& segment, Id before, Id value, const Matrix& matrix, bool ranks, bool rows) const {
    const ValueInfo info = segment.program().value(matrix.gradient);
    for (const Lies& lies : matrix.lies) {
      const auto at =
          std::find_if(info.dims, info.dims + info.rank, [&](const Dim& d) { return d.name == lies.dim; });
      const bool splits = lies.kind == PlacementKind::sharded && (at - info.dims < matrix.rows) == rows;
      if (splits || (ranks && lies.kind == PlacementKind::partial && lies.axis.view() == axis_))
        value = segment.insert(
            FunctionKind::reduce, before, "all_reduce", {value}, 1,
            {{"axis", static_cast<double>(segment.program().axis(lies.axis.view()).number)}})[0];
    }
    return value;
  }

  std::string axis_;
  std::int64_t rank_;
};

}  // namespace

PRUN_PLUGIN(strategy, PowerSgd, "powersgd", "1.0.0", "All-reduces gradients of matrices in low rank",
            "phase=placed; only=training; axis=batch; conflicts=zero",
            // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): each option is one text on one line.
            "axis | string | dp |        | Mesh axis over which gradients are summed\n"
            "rank | int    | 2  | 1..256 | Rank of the approximation: columns of P and Q\n");
