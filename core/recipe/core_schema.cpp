// Lists what the core itself reads from a recipe.
#include "recipe/core_schema.hpp"

#include <array>
#include <vector>

namespace prun::recipe {

namespace {

enum class Form : std::uint8_t { table, list, list_of_at_least_one };

struct Declaration {
  std::string_view name;
  Form form;
  std::string_view plugin_kind;
  std::string_view value_kind;
  std::string_view help;
  std::string_view options;
  std::string_view table_kind = "";
};

constexpr std::array<Declaration, 20> declarations = {{
    {"run", Form::table, "", "", "The run itself: how long, where to, what happens on trouble.", R"(
      name         | string | required |  | Name of the run
      steps        | int    | required | 1..1000000000000 | Optimizer steps to take
      epochs       | float  | 0        | 0..1000000 | Times that the samples of [data] are gone through, where that takes fewer steps than run.steps; 0 counts steps alone
      seed         | int    | 1        | 0.. | Seed of everything random
      layout       | choice | said     | said,auto | auto: what the recipe leaves out of mesh, strategies and microbatch is searched as prun tune does, before ranks start; a run that goes on keeps what it had
      ranks        | int    | 0        | 0..1048576 | Ranks that layout = "auto" lays out for; 0: one for each unit of the device, or those that a launcher has started
      out          | string |          |  | Folder for logs and checkpoints; empty means runs/<name>
      save_every   | int    | 0        | 0.. | Steps between two checkpoints; 0 saves none between steps
      save_minutes | float  | 0        | 0.. | Minutes between two checkpoints, beside save_every; 0 asks for none
      save_at_end  | bool   | true     |  | Save a run that has finished its steps. Room for the checkpoint is checked before the first step
      save_memory  | string |          |  | Bytes of the host's memory that what is saved passes through, such as 8GiB; all: everything is copied before training goes on; empty: what the plan leaves free, 16MiB at least
      save_rate    | size   | 1GiB     |  | Bytes a second that the disk of run.out takes from all ranks of a host: what plans say of the time that a save takes is by it
      keep         | int    | 0        | 0.. | Newest checkpoints to keep; 0 keeps all
      keep_every   | int    | 0        | 0.. | Also keep those whose step is a multiple of it; 0 keeps no others
      on_nonfinite | choice | none     | stop,skip | What a non-finite loss or gradient does to the run; where it is not given: skip where the loss is scaled, else stop
      hang_limit   | int    | 600      | 0..1000000 | Seconds that ranks may wait for one, in a collective or while it saves, or that no rank may get on in a step; 0 waits for ever
      measure_comm | int    | 10       | 0.. | Steps from one that measures how long computing waits for communication to the next; 0 never does
      compare_every | int   | 100      | 0.. | Steps from one comparison of what several ranks hold alike to the next, and before each save; 0 never compares
      bundle       | size   |          |  | Bytes up to which layers exchange gradients or parameters together, 0B: each alone; empty: 32MiB, or a quarter of all if that is less
      keep_gradients | bool | true     |  | Keep gradients that lie elsewhere than on the device until the step ends; false: until their update, which makes room for the next layer's, where updates wait for no norm: bits are the same, backward waits for updates
      restarts     | int    | 0        | 0..1000 | Times in a row that prun starts the ranks again, from the last checkpoint, after one was lost; counts anew with each checkpoint
      loss_by_set  | bool   | false    |  | Tell the loss of each set of the data by itself after each step
      loss_by_role | bool   | false    |  | Tell the loss of each role of conversations by itself after each step, as far as its tokens count
      log          | bool   | true     |  | Write log.jsonl in the run's folder, which prun report, runs, watch and diff read, where no [[observer]] of the recipe does
      poison       | bool   | false    |  | Fill memory with NaN once it is dead and fence every value, to test that nothing is read too early or written outside
      resume       | string |          |  | Checkpoint to continue from; empty starts anew
      changed      | strings | []      |  | Keys that may differ although they give what is loaded another meaning: of samples (data.*, model.seq, run.seed) when a run is resumed, of weights (model.*) that model.init names; strategy.N.plugin where parameters that this strategy adds are to start from the seed, since what is loaded has none of them
      fresh        | bool   | false    |  | Move a run that the folder holds aside, to its name with a number, unless it is resumed
    )"},
    {"model", Form::table, "model", "", "What is trained.", R"(
      plugin | string | required |  | Model plugin
      seq    | int    | required | 1..16777216 | Tokens of one sequence
      config | string |          |  | A config.json of Hugging Face, or a folder with one, that gives the plugin and its options; those that are given here win
      init   | string |          |  | What parameters start from: a folder of Hugging Face, which gives the plugin and its options as well, a checkpoint or a run's folder; empty: from the seed
      adapter | string |        |  | A folder of PEFT with adapter_model.safetensors, that the adapters which a strategy adds start from
    )"},
    {"data", Form::table, "data", "", "What it is trained on.", R"(
      plugin  | string | required |  | Data plugin
      shuffle | bool   | true     |  | Visit the samples in a random order that the seed fixes
      weight  | float  | 1        | 1e-9..1e9 | Its share of the samples where [[data.blend]] has further sets, by the sum of all weights
      validation | float | 0      | 0..0.5 | Share of each set's samples, its last ones, that is kept from training to validate on
      documents | choice | joined | joined,apart | apart: attention stops where a document begins, and no token is predicted from the document before its own
      end_of_text | int | none   | 0..2147483647 | Token that ends a document, which documents = "apart" needs
      mask    | float  | 0        | 0..1 | Share of tokens that a model of both directions predicts in place; of these, eight in ten are hidden behind mask_token and one becomes any token
      mask_token | int | none     | 0..2147483647 | Token that stands for a hidden one
      spans   | float  | 0        | 0..0.9 | Share of a text that is cut out of it in spans, which a model with encoder and decoder writes
      span_length | float | 3     | 1..1000000 | Tokens of a span, on average
      span_token | int | none     | 0..2147483647 | Token that stands for the first span; those of the next ones are below it
      span_end | int   | 1        | 0..2147483647 | Token behind the text, and behind what the decoder writes
      span_start | int | 0        | 0..2147483647 | Token that the decoder begins with
      mask_never | ints | []      | 0..2147483647 | Tokens that are not predicted and that none becomes, such as those between sentences
    )"},
    {"data.blend", Form::list, "data", "", "Further sets, blended into [data] sample by sample.", R"(
      plugin | string | required |  | Data plugin
      weight | float  | 1        | 1e-9..1e9 | Its share of the samples, by the sum of all weights
    )"},
    {"validation", Form::list, "data", "", "Sets to validate on that are not trained on.", R"(
      plugin | string | required |  | Data plugin
      weight | float  | 1        | 1e-9..1e9 | Its share of the samples, by the sum of all weights
    )"},
    {"batch", Form::table, "", "", "How many sequences a step takes.", R"(
      global | int | required | 1..1000000000 | Sequences a step, over all ranks
      micro  | int | 0 | 0..1000000 | Sequences a rank takes at once; accumulation follows; 0: left to prun tune and to run.layout = "auto"
      order  | choice | horizontal | horizontal,vertical,auto | Of microbatches: each through all layers before the next, or all through a layer before the next layer; auto: what is predicted to take less time
      interleave | int | 1 | 1..64 | Microbatches that go through the layers side by side, so that one computes while what others exchange travels
      pad    | bool | false    |  | Fill the last microbatch with sequences that do not count, where global does not divide
      ramp.start     | int | 0 | 0..1000000000 | Sequences of the first steps of a run, where a step grows to global; 0: it has global from the first on, unless ramp.sizes says otherwise
      ramp.increment | int | 0 | 0..1000000000 | Sequences that a step grows by at a time, evenly spread over ramp.samples
      ramp.samples   | int | 0 | 0..1000000000000000 | Samples from the first on, behind which a step has global sequences
      ramp.sizes | ints | [] | 1..1000000000 | Sequences of a step, in turn, of a ramp of one's own, before it has global
      ramp.until | ints | [] | 1..1000000000 | The last step of each of ramp.sizes
    )"},
    {"eval", Form::table, "", "",
     "The loss on what data.validation or [[validation]] names, as training goes on.", R"(
      every   | int | 0 | 0.. | Steps between two evaluations, of which one more comes at the end; 0 evaluates never
      batches | int | 8 | 1..1000000000 | Batches of the recipe's size that an evaluation takes, from the first sample on
      average | bool | false |        | Evaluate the average of the weights as well (optimizer.average), on the same batches
      by_set  | bool | false |        | Evaluate each set by itself as well, over as many batches of its own
      keep_best | bool | false |       | Save where an evaluation's loss is the lowest so far, and keep that checkpoint: `best` in the run's folder leads to it
      patience | int | 0 | 0..1000000000 | Evaluations in a row without a lower loss after which the run ends; 0 ends none
    )"},
    {"precision", Form::table, "", "", "Which number formats are used where.", R"(
      compute  | choice | fp32  | fp64,fp32,bf16,fp16 | Parameters and activations; fp16 scales the loss, as [loss_scale] says
      products | choice | compute | compute,fp8 | What matrix products of layers round their factors to; fp8: e4m3 in blocks of 128 along what is summed, of weights in squares, each with a scale that is a power of two; sums and results are as with compute, and so are embedding, head, router, experts and attention, and products whose widths are no multiples of 16 or whose sequences no multiples of 128
      first_in_compute | int | 0 | 0..1000000 | With products = "fp8": so many of the first layers multiply as with compute
      last_in_compute  | int | 0 | 0..1000000 | With products = "fp8": so many of the last layers, and what the head has of such products, multiply as with compute
      saved    | choice | compute | compute,fp8 | With products = "fp8": what backward reads of forward for such products alone; fp8: the codes that they multiply, half the bytes of bf16 and the same results
      weight_codes | choice | product | product,step | With products = "fp8": how often a weight becomes codes; product: for each product; step: once a step, kept for all microbatches, two bytes an element and 1/64 of that, and the same results; where ranks gather weights, these codes are what they gather
      gathered_inputs | choice | compute | compute,fp8 | With products = "fp8": what ranks gather of activations for such products alone, as tensor parallelism with sequence = true does; fp8: codes, about half the bytes of bf16, and the same results
      count_every | int | 0 | 0..1000000000 | With products = "fp8": in each step whose number is a multiple of it, count of every factor which share of its numbers becomes zero or subnormal, its largest magnitude, and its blocks' scales; 0 counts never
      flushed_bound | float | 0.01 | 0..1 | With count_every: the share of a layer's factor that becomes zero beyond which the run says so, once
      state    | choice | fp32  | fp64,fp32,bf16 | What master, moments and gradient are that do not say it themselves
      master   | choice | state | state,fp64,fp32,bf16,split | Weights that are updated; split: fp32, its low half beside the bf16 parameter; bf16 rounds stochastically
      moments  | choice | state | state,fp64,fp32,bf16,8bit | What the optimizer keeps for each weight; bf16 and 8bit round stochastically; 8bit: in blocks of 128, what has fewer than 4096 elements or does not come in blocks in fp32
      gradient | choice | state | state,fp64,fp32,bf16 | Accumulated gradients
      reduce   | choice | state | state,fp64,fp32,bf16,int8,int4,1bit | What travels when gradients are summed; state: the type they are kept in; int8 and int4, with strategy zero: codes in blocks of 128 that have a scale each, rounded on each rank and summed where they arrive; 1bit, with an optimizer that sums its momentum: signs and such scales, and what these leave out is added to what comes next; what has fewer than 4096 elements or does not come in blocks travels as with state
      gather   | choice | compute | compute,int8,fp8 | What travels when parameters that ranks keep in parts come together (zero, stage = 3); compute: the type they are in; int8: codes in blocks as of reduce, which every rank computes with; fp8: such codes in e4m3, of scales that are powers of two; weights that are updated stay exact
    )"},
    {"loss_scale", Form::table, "", "",
     "What the loss is multiplied by for backward, and updates divide by, so that small gradients are not "
     "lost in fp16.",
     R"(
      rule       | choice | none | deepspeed,megatron,static | How the scale moves: halved where a gradient is not finite, and that step skipped; doubled after a window without one. deepspeed ends the run that would fall below the least; megatron goes on there; static stays. Where it is not given: deepspeed with precision.compute = "fp16", else nothing is scaled
      initial    | float  | none | 1e-30..1e30 | The scale to begin with, a power of two; where it is not given: 65536 of deepspeed, 4294967296 of megatron
      window     | int    | 1000 | 1..1000000000 | Steps in a row that are finite until the scale is doubled; deepspeed counts from the second one on
      hysteresis | int    | 2    | 1..1000000000 | Steps that are not finite until the scale falls; from then on each lets it fall, until it rises
      least      | float  | 1    | 1e-30..1e30 | Below which it does not fall, a power of two
      consecutive_hysteresis | bool | false | | Each finite step restores the hysteresis, rather than a rise alone
    )"},
    {"optimizer", Form::table, "optimizer", "", "How gradients become updates.", R"(
      plugin          | string | required |  | Optimizer plugin
      lr              | float  | required | 0..1000000 | Learning rate at its peak
      clip            | float  | 0        | 0.. | Largest global gradient norm; 0 never clips
      average         | float  | 0        | 0..0.999999 | Decay of an average of the weights (EMA) that is kept beside them, saved, and read by --average of prun eval, generate and export; 0 keeps none
      delays          | ints   | []       | 0.. | Of one rank, for each layer with embedding and head counted: how many updates old the weights are that it trains with, under a schedule of a pipeline with delay=stages. prun verify says so to the rank that it compares with
      schedule.kind   | choice | constant | constant,linear,cosine,wsd,inverse-sqrt,polynomial,steps,points | Shape of the learning rate after warm-up; wsd: at its peak until schedule.decay steps before the end; steps and points: as schedule.at and schedule.factors say
      schedule.warmup | int    | 0        | 0.. | Steps over which the learning rate rises from 0
      schedule.final  | float  | 0        | 0..1 | Learning rate at the end, as a fraction of lr
      schedule.steps  | int    | 0        | 0.. | Step at which the end is reached; 0 means run.steps
      schedule.decay  | int    | none     | 1.. | Steps over which wsd falls to the end
      schedule.shape  | choice | linear   | linear,cosine,sqrt | How wsd falls; sqrt: by the root of what has passed of it
      schedule.power  | float  | 2        | 0.1..10 | Of what is left of the way to the end, for polynomial
      schedule.at      | ints   | []      | 0.. | Steps of a schedule of one's own, in their order
      schedule.factors | floats | []      | 0..1000 | By what lr is multiplied: by steps after each of them, by points at them and evenly in between
    )"},
    {"optimizer.group", Form::list, "optimizer", "",
     "Parameters that are treated differently; the first match counts.", R"(
      match        | string | required |  | Glob over parameter names, such as *.bias
      of           | choice | all      | all,matrices,others | Of those the ones that the model says are made of matrices, or the others: tables, gains, biases
      plugin       | string | none     |  | Optimizer plugin that updates them in place of the optimizer's
      lr_scale     | float  | 1        | 0.. | Factor on the learning rate
      weight_decay | float  | none     | 0.. | Weight decay in place of the optimizer's
      frozen       | bool   | false    |  | Do not train these parameters
    )"},
    {"device", Form::table, "device", "", "What computes.", R"(
      plugin | string | auto |  | Device plugin; auto: one of GPUs where this machine can train the recipe on them, else the host's
      memory | size   |     |  | Ceiling on the plan of a rank, such as 80GiB; empty means the device's, less what the process needs of it
    )"},
    {"mesh", Form::table, "", "", "Named axes over the ranks; their product is the number of ranks.", R"(
      * | int | none | 1..1048576 | Extent of this axis
    )"},
    {"strategy", Form::list, "strategy", "", "How the step is spread over the mesh, one table a strategy.",
     R"(
      plugin | string | required |  | Strategy plugin
    )"},
    {"observer", Form::list_of_at_least_one, "observer", "", "Who sees steps, metrics and events.", R"(
      plugin | string | console |  | Observer plugin
    )"},
    {"comm", Form::table, "", "comm", "Which comm plugin carries the traffic of a mesh axis.", R"(
      default | string | auto |  | Comm plugin of the axes not named here; auto: the one that goes with the device
      *       | string | none |  | Comm plugin of this axis, or auto
    )",
     "comm"},
    {"plugins", Form::table, "", "", "Where plugins are found.", R"(
      path | strings | [] |  | Folders to search after --plugin-path and PRUN_PLUGIN_PATH, before the installed ones
      ops  | strings | [] |  | Op plugins to load
    )"},
    {"schedule", Form::table, "", "", "How the plugins of pipeline schedules are set.", "", "schedule"},
    {"op", Form::table, "", "", "How op plugins are set.", "", "op"},
    {"tier", Form::table, "", "", "How the devices that strategies ask for beside [device] are set.", "",
     "device"},
}};

SectionRule rule_of(const Declaration& declared) {
  return {std::string(declared.name),
          declared.form != Form::table,
          std::string(declared.plugin_kind),
          std::string(declared.value_kind),
          declared.form == Form::list_of_at_least_one,
          std::string(declared.help),
          parse_schema(declared.options, declared.name),
          std::string(declared.table_kind)};
}

std::vector<SectionRule> build_rules() {
  std::vector<SectionRule> rules;
  rules.reserve(std::size(declarations));
  for (const Declaration& declared : declarations) rules.push_back(rule_of(declared));
  return rules;
}

}  // namespace

std::span<const SectionRule> core_sections() {
  static const std::vector<SectionRule> rules = build_rules();
  return rules;
}

}  // namespace prun::recipe
