// Adafactor keeps second moments by row and column instead of by element, and its steps are relative to the
// weights.
#include "prun/plugin.hpp"

namespace prun {
namespace {

// States rows and columns: as the model says of matrices, else the last dimension has the columns.
struct Factors {
  Factors(const std::vector<Dim>& all, const Matrices& made) : dims(all) {
    const int rank = static_cast<int>(dims.size());
    batch = made.columns > 0 ? made.batch : 0;
    columns = made.columns > 0 ? made.columns : std::min(rank, 1);
  }

  std::vector<Dim> of_rows() const { return {dims.begin(), dims.end() - columns}; }
  std::vector<Dim> of_columns() const {
    std::vector<Dim> list = of_total();
    list.insert(list.end(), dims.end() - columns, dims.end());
    return list;
  }
  std::vector<Dim> of_total() const { return {dims.begin(), dims.begin() + batch}; }

  static double product(const std::vector<Dim>& dims) {
    double product = 1;
    for (const Dim& dim : dims) product *= static_cast<double>(dim.extent);
    return product;
  }

  std::vector<Dim> dims;
  int batch = 0, columns = 1;
};

class Adafactor final : public Optimizer {
 public:
  explicit Adafactor(const Options& options)
      : decay_(options.number("decay")),
        least_(options.number("least")),
        limit_(options.number("limit")),
        eps_(options.number("eps")),
        weight_decay_(options.number("weight_decay")) {}

  std::vector<State> states_of(const ParameterShape& parameter) override {
    const Factors of({parameter.dims.begin(), parameter.dims.end()}, parameter.matrices);
    return {{"rows", of.of_rows(), parameter.sums},
            {"columns", of.of_columns(), parameter.sums},
            {"total", of.of_total(), parameter.sums}};
  }

  void update(Segment segment, const UpdateContext& c) override {
    const ProgramRef program = segment.program();
    const ValueInfo info = program.value(c.parameter);
    const Factors of({info.dims, info.dims + info.rank}, program.matrices(c.parameter));
    const double all = Factors::product(of.dims);
    const AttrValue batch{"batch", static_cast<double>(of.batch)},
        columns{"columns", static_cast<double>(of.columns)};
    const auto insert = [&](const char* kind, std::initializer_list<Id> inputs, int results,
                            std::initializer_list<AttrValue> attrs) {
      return segment.insert(FunctionKind::update, none, kind, inputs, results, attrs);
    };
    const std::vector<Id> sums = insert("factored_squares", {c.gradient, c.clip}, 3, {batch, columns});
    const double counts[] = {all / Factors::product(of.of_rows()), all / Factors::product(of.of_columns()),
                             all / Factors::product(of.of_total())};
    for (std::size_t i = 0; i < sums.size(); ++i)
      insert("mean_update", {c.states[i], sums[i], c.step, c.keep}, 0,
             {{"decay", decay_}, {"count", counts[i]}});
    const std::vector<Id> direction =
        insert("factored_direction", {c.gradient, c.clip, c.states[0], c.states[1], c.states[2]}, 2,
               {batch, columns, {"eps", eps_}});
    const Id weights = insert("square_sum", {c.parameter}, 1, {})[0];
    const Id factor =
        insert("adafactor_factor", {direction[1], weights, c.lr, c.step}, 1,
               {{"count", all}, {"least", least_}, {"limit", limit_}, {"lr_scale", c.lr_scale}})[0];
    const Id scaled = insert("scale_by", {direction[0], factor}, 1, {})[0];
    const double decay = !c.decay ? 0 : c.weight_decay >= 0 ? c.weight_decay : weight_decay_;
    insert("sgd",
           {c.parameter, c.master, scaled, none, c.lr, none, c.keep, c.seed == none ? none : c.step, c.seed},
           0, {{"weight_decay", decay}, {"lr_scale", c.lr_scale}});
  }

 private:
  double decay_, least_, limit_, eps_, weight_decay_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(optimizer, prun::Adafactor, "adafactor", "0.1.0",
            "Adafactor: factored second moments, updates relative to the weights", "whole=tensors",
            "decay        | float | -0.8 | -10..0 | Exponent of the second moments' decay: step n enters the "
            "running means with weight n^decay\n"
            "least        | float | 1e-3 | 0..1e6 | Minimum root mean square of the weights that updates are "
            "relative to\n"
            "limit        | float | 1    | 1e-6..1e6 | Clipping threshold: updates whose root mean square "
            "exceeds this are scaled down to it\n"
            "eps          | float | 1e-7 | 0..1   | Minimum square root of a second moment\n"
            "weight_decay | float | 0    | 0..10  | Decoupled weight decay, on matrices only\n");
