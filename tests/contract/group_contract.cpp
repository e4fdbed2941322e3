// Contract of process groups: each collective, compared with the reference on every fixture.
#include "contract/group_contract.hpp"

#include "harness/reductions.hpp"

namespace hookline::testing {
namespace {

TEST_P(GroupContract, Allreduce) {
  const std::vector<ReduceOp> ops = all_reduce_ops(0.5);
  sample(24, [&](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int root) {
    const ReduceOp chosen = ops[static_cast<std::size_t>(count + root) % ops.size()];
    for (const ReduceOp& op : full_matrix() ? ops : std::vector{chosen}) {
      if (!supports(op, dtype)) continue;
      const Tensor t = make_tensor(group, count, dtype, layout);
      fill(t, group.rank());
      group.allreduce(t, {.op = op})->wait();
      expect(t, expected_reduction(t, op, group.size()), "allreduce " + std::string(name(op)));
    }
  });
}

TEST_P(GroupContract, AllreduceCoalesced) {
  sample(6, [](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int) {
    const Tensor a = make_tensor(group, count, dtype, layout);
    const Tensor b = make_tensor(group, 13, dtype, Layout::plain);
    fill(a, group.rank(), 0);
    fill(b, group.rank(), 1);
    group.allreduce_coalesced({a, b}, {.op = ReduceOp::max})->wait();
    expect(a, expected_reduction(a, ReduceOp::max, group.size(), 0), "first");
    expect(b, expected_reduction(b, ReduceOp::max, group.size(), 1), "second");
  });
}

TEST_P(GroupContract, ReduceAndBroadcast) {
  sample(6, [](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int root) {
    const Tensor t = make_tensor(group, count, dtype, layout);
    fill(t, group.rank());
    const std::vector<ReduceOp> ops = {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum(0.5)};
    ReduceOp op = ops[static_cast<std::size_t>(count + root) % ops.size()];
    if (!supports(op, dtype)) op = ReduceOp::sum;
    group.reduce(t, {.op = op, .root = root})->wait();
    if (group.rank() == root) {
      expect(t, expected_reduction(t, op, group.size()), "reduce " + std::string(name(op)));
    } else {
      expect(t, expected_input(t, group.rank()), "reduce on another rank than the root");
    }
    group.broadcast(t, {.root = root})->wait();
    expect(t, expected_reduction(t, op, group.size()), "broadcast");
  });
}

TEST_P(GroupContract, Allgather) {
  sample(6, [](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int) {
    const Tensor input = make_tensor(group, count, dtype, layout);
    fill(input, group.rank());
    std::vector<Tensor> outputs;
    for (int r = 0; r < group.size(); ++r) outputs.push_back(make_tensor(group, count, dtype, layout));
    group.allgather(outputs, input)->wait();
    for (int r = 0; r < group.size(); ++r)
      expect(outputs[static_cast<std::size_t>(r)], expected_input(input, r), "allgather");

    const Tensor output = make_tensor(group, count * group.size(), dtype, layout);
    group.allgather_into_tensor(output, input)->wait();
    for (int r = 0; r < group.size(); ++r) {
      expect(output.slice(0, r * count, (r + 1) * count).reshape(input.shape()), expected_input(input, r),
             "into_tensor");
    }
  });
}

TEST_P(GroupContract, AllgatherCoalesced) {
  sample(5, [](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int) {
    const Tensor a = make_tensor(group, count, dtype, layout);
    const Tensor b = make_tensor(group, 5, dtype, layout);
    fill(a, group.rank(), 0);
    fill(b, group.rank(), 1);
    const Tensor all_a = make_tensor(group, count * group.size(), dtype, Layout::plain);
    const Tensor all_b = make_tensor(group, 5 * group.size(), dtype, Layout::plain);
    group.allgather_into_tensor_coalesced({all_a, all_b}, {a, b})->wait();
    std::vector<std::vector<Tensor>> lists;
    for (int r = 0; r < group.size(); ++r)
      lists.push_back({make_tensor(group, count, dtype, layout), make_tensor(group, 5, dtype, layout)});
    group.allgather_coalesced(lists, {a, b})->wait();
    for (int r = 0; r < group.size(); ++r) {
      const auto& list = lists[static_cast<std::size_t>(r)];
      expect(list[0], expected_input(a, r, 0), "list of a");
      expect(list[1], expected_input(b, r, 1), "list of b");
      expect(all_a.slice(0, r * count, (r + 1) * count).reshape(a.shape()), expected_input(a, r, 0), "all of a");
      expect(all_b.slice(0, r * 5, (r + 1) * 5).reshape(b.shape()), expected_input(b, r, 1), "all of b");
    }
  });
}

// Covers several chunks of the backends' pipelines, and sizes that are not multiples of the number of ranks.
TEST_P(GroupContract, LargeReductions) {
  for (const auto& [ranks, bytes] : {std::pair{4, 9 << 20}, {6, 5 << 20}, {7, 5 << 20}}) {
    EXPECT_NO_THROW(GetParam().spawn(
        ranks,
        [bytes = bytes](ProcessGroup& group) {
          for (const DType dtype : {DType::f32, DType::f64}) {
            const std::int64_t each = bytes / static_cast<std::int64_t>(size_of(dtype)) / group.size() + 1;
            const Tensor whole = Tensor::empty({each * group.size()}, dtype);
            fill(whole, group.rank());
            const Tensor sum = expected_reduction(whole, ReduceOp::sum, group.size());
            group.allreduce(whole)->wait();
            expect(whole, sum, "allreduce");
            fill(whole, group.rank());
            group.reduce(whole, {.root = 1})->wait();
            expect(whole, group.rank() == 1 ? sum : expected_input(whole, group.rank()), "reduce");
            fill(whole, group.rank());
            const Tensor part = Tensor::empty({each}, dtype);
            group.reduce_scatter_tensor(part, whole)->wait();
            expect(part, sum.slice(0, group.rank() * each, (group.rank() + 1) * each), "reduce_scatter_tensor");
            group.allgather_into_tensor(whole, part)->wait();
            expect(whole, sum, "allgather_into_tensor");
            const Tensor all =
                make_tensor(group, each * group.size(), dtype, dtype == DType::f32 ? Layout::shared : Layout::plain);
            const Tensor own = slice_of(all, group.rank(), each);
            fill(all, group.rank());
            group.reduce_scatter_tensor(own, all)->wait();
            expect(own, slice_of(sum, group.rank(), each), "reduce_scatter_tensor in place");
            group.allgather_into_tensor(all, own)->wait();
            expect(all, sum, "allgather_into_tensor in place");
          }
        }))
        << ranks << " ranks";
  }
}

TEST_P(GroupContract, GatherAndScatter) {
  sample(6, [](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int root) {
    const Tensor input = make_tensor(group, count, dtype, layout);
    fill(input, group.rank());
    std::vector<Tensor> all;
    if (group.rank() == root) {
      for (int r = 0; r < group.size(); ++r) all.push_back(make_tensor(group, count, dtype, layout));
    }
    group.gather(all, input, {.root = root})->wait();
    for (std::size_t r = 0; r < all.size(); ++r) expect(all[r], expected_input(input, static_cast<int>(r)), "gather");

    const Tensor output = make_tensor(group, count, dtype, layout);
    group.scatter(output, all, {.root = root})->wait();
    expect(output, expected_input(input, group.rank()), "scatter");
  });
}

TEST_P(GroupContract, ReduceScatter) {
  sample(6, [](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int) {
    std::vector<Tensor> inputs;
    const Tensor joined = make_tensor(group, count * group.size(), dtype, layout);
    for (int r = 0; r < group.size(); ++r) {
      inputs.push_back(make_tensor(group, count, dtype, layout));
      fill(inputs.back(), group.rank(), r);
      joined.slice(0, r * count, (r + 1) * count).reshape(inputs.back().shape()).copy_from(inputs.back());
    }
    const Tensor output = make_tensor(group, count, dtype, layout);
    group.reduce_scatter(output, inputs, {.op = ReduceOp::sum})->wait();
    expect(output, expected_reduction(output, ReduceOp::sum, group.size(), group.rank()), "reduce_scatter");
    output.fill(0);
    group.reduce_scatter_tensor(output, joined, {.op = ReduceOp::max})->wait();
    expect(output, expected_reduction(output, ReduceOp::max, group.size(), group.rank()), "reduce_scatter_tensor");
    const Tensor second = make_tensor(group, count, dtype, layout);
    output.fill(0);
    group.reduce_scatter_tensor_coalesced({output, second}, {joined, joined})->wait();
    expect(output, expected_reduction(output, ReduceOp::sum, group.size(), group.rank()), "coalesced, first");
    expect(second, expected_reduction(output, ReduceOp::sum, group.size(), group.rank()), "coalesced, second");
    for (const ReduceOp& op : {ReduceOp::avg, ReduceOp::premul_sum(0.5)}) {
      if (!supports(op, dtype)) continue;
      group.reduce_scatter_tensor(output, joined, {.op = op})->wait();
      expect(output, expected_reduction(output, op, group.size(), group.rank()), std::string(name(op)));
    }
    for (int r = 0; r < group.size(); ++r) {
      const Tensor& input = inputs[static_cast<std::size_t>(r)];
      expect(input, expected_input(input, group.rank(), r), "an input, afterwards");
      expect(joined.slice(0, r * count, (r + 1) * count), expected_input(input, group.rank(), r),
             "the input, afterwards");
    }
  });
}

// The output is this rank's slice of the input; the other slices must stay unchanged.
TEST_P(GroupContract, ReduceScatterInPlace) {
  sample(6, [](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int) {
    const int me = group.rank();
    const auto filled = [&](std::int64_t each) {
      const Tensor all = make_tensor(group, each * group.size(), dtype, layout);
      for (int r = 0; r < group.size(); ++r) fill(slice_of(all, r, each), me, r);
      return all;
    };
    const auto expect_done = [&](const Tensor& all, std::int64_t each, ReduceOp op, const std::string& what) {
      for (int r = 0; r < group.size(); ++r) {
        const Tensor slice = slice_of(all, r, each);
        expect(slice, r == me ? expected_reduction(slice, op, group.size(), r) : expected_input(slice, me, r),
               what + ", slice " + std::to_string(r));
      }
    };
    for (const ReduceOp& op : {ReduceOp::sum, ReduceOp::max, ReduceOp::avg, ReduceOp::premul_sum(0.5)}) {
      if (!supports(op, dtype)) continue;
      const Tensor all = filled(count);
      group.reduce_scatter_tensor(slice_of(all, me, count), all, {.op = op})->wait();
      expect_done(all, count, op, "reduce_scatter_tensor " + std::string(name(op)));
    }
    const Tensor first = filled(count);
    const Tensor second = filled(5);
    const Tensor separate = make_tensor(group, count, dtype, layout);
    group
        .reduce_scatter_tensor_coalesced({slice_of(first, me, count), slice_of(second, me, 5), separate},
                                         {first, second, filled(count)})
        ->wait();
    expect_done(first, count, ReduceOp::sum, "first of several");
    expect_done(second, 5, ReduceOp::sum, "second of several");
    expect(separate, expected_reduction(separate, ReduceOp::sum, group.size(), me), "last of several, not in place");

    // Lists of tensors: first slices of one tensor, then separate tensors.
    const Tensor all = filled(count);
    std::vector<Tensor> slices;
    std::vector<Tensor> tensors;
    for (int r = 0; r < group.size(); ++r) {
      slices.push_back(slice_of(all, r, count));
      fill(tensors.emplace_back(make_tensor(group, count, dtype, layout)), me, r);
    }
    const auto mine = static_cast<std::size_t>(me);
    group.reduce_scatter(slices[mine], slices)->wait();
    expect_done(all, count, ReduceOp::sum, "list of slices");
    group.reduce_scatter(tensors[mine], tensors)->wait();
    for (int r = 0; r < group.size(); ++r) {
      const Tensor& t = tensors[static_cast<std::size_t>(r)];
      expect(t, r == me ? expected_reduction(t, ReduceOp::sum, group.size(), r) : expected_input(t, me, r), "list");
    }
  });
}

// In place: the input of a gather is this rank's slice of the output; the output of a scatter is a slice of the root's
// input.
TEST_P(GroupContract, GatherAndScatterInPlace) {
  sample(6, [](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int root) {
    const int me = group.rank();
    const auto mine = static_cast<std::size_t>(me);
    const auto list = [&](std::int64_t each) {
      std::vector<Tensor> tensors;
      for (int r = 0; r < group.size(); ++r) fill(tensors.emplace_back(make_tensor(group, each, dtype, layout)), me, r);
      return tensors;
    };
    const auto expect_gathered = [&](const std::vector<Tensor>& tensors, const std::string& what) {
      for (int r = 0; r < group.size(); ++r) {
        const Tensor& t = tensors[static_cast<std::size_t>(r)];
        expect(t, expected_input(t, r, r), what);
      }
    };
    const std::vector<Tensor> all = list(count);
    group.allgather(all, all[mine])->wait();
    expect_gathered(all, "allgather");

    const std::vector<Tensor> rooted = list(count);
    group.gather(me == root ? rooted : std::vector<Tensor>(), rooted[mine], {.root = root})->wait();
    if (me == root) expect_gathered(rooted, "gather");
    group.scatter(rooted[mine], me == root ? rooted : std::vector<Tensor>(), {.root = root})->wait();
    if (me == root) expect_gathered(rooted, "scatter at the root");
    expect(rooted[mine], expected_input(rooted[mine], me, me), "scatter");

    const std::vector<Tensor> first = list(count);
    const std::vector<Tensor> second = list(5);
    std::vector<std::vector<Tensor>> pairs;
    for (std::size_t r = 0; r < first.size(); ++r) pairs.push_back({first[r], second[r]});
    group.allgather_coalesced(pairs, {first[mine], second[mine]})->wait();
    expect_gathered(first, "first of several");
    expect_gathered(second, "second of several");

    const Tensor whole = make_tensor(group, count * group.size(), dtype, layout);
    const Tensor other = make_tensor(group, 5 * group.size(), dtype, layout);
    for (const bool several : {false, true}) {
      fill(slice_of(whole, me, count), me);
      fill(slice_of(other, me, 5), me);
      if (several) {
        group.allgather_into_tensor_coalesced({whole, other}, {slice_of(whole, me, count), slice_of(other, me, 5)})
            ->wait();
      } else {
        group.allgather_into_tensor(whole, slice_of(whole, me, count))->wait();
      }
      for (int r = 0; r < group.size(); ++r) {
        const Tensor slice = slice_of(whole, r, count);
        expect(slice, expected_input(slice, r), several ? "into tensors" : "into a tensor");
        slice.fill(0);
      }
    }
    for (int r = 0; r < group.size(); ++r) {
      const Tensor slice = slice_of(other, r, 5);
      expect(slice, expected_input(slice, r), "into the other tensor");
    }
  });
}

TEST_P(GroupContract, Alltoall) {
  sample(6, [](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int) {
    const auto n = [&](int from, int to) { return (count + from * 3 + to) % (count + 5); };
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    std::vector<std::int64_t> input_splits;
    std::vector<std::int64_t> output_splits;
    std::int64_t rows_in = 0;
    std::int64_t rows_out = 0;
    for (int r = 0; r < group.size(); ++r) {
      inputs.push_back(make_tensor(group, n(group.rank(), r), dtype, layout));
      fill(inputs.back(), group.rank(), r);
      outputs.push_back(make_tensor(group, n(r, group.rank()), dtype, layout));
      rows_in += input_splits.emplace_back(n(group.rank(), r));
      rows_out += output_splits.emplace_back(n(r, group.rank()));
    }
    group.alltoall(outputs, inputs)->wait();
    for (int r = 0; r < group.size(); ++r) {
      const Tensor& t = outputs[static_cast<std::size_t>(r)];
      expect(t, expected_input(t, r, group.rank()), "alltoall");
    }
    const Tensor input = make_tensor(group, rows_in, dtype, layout);
    const Tensor output = make_tensor(group, rows_out, dtype, layout);
    std::int64_t at = 0;
    for (const Tensor& t : inputs) {
      input.slice(0, at, at + t.numel()).reshape(t.shape()).copy_from(t);
      at += t.numel();
    }
    group.alltoall_base(output, input, output_splits, input_splits)->wait();
    at = 0;
    for (int r = 0; r < group.size(); ++r) {
      const std::int64_t rows = output_splits[static_cast<std::size_t>(r)];
      const Tensor part = output.slice(0, at, at + rows);
      expect(part, expected_input(part, r, group.rank()), "alltoall_base");
      at += rows;
    }
  });
}

TEST_P(GroupContract, SendsAndReceives) {
  sample(5, [](ProcessGroup& group, DType dtype, std::int64_t count, Layout layout, int) {
    // A ring that receives the tags in reverse order.
    const int next = (group.rank() + 1) % group.size();
    const int before = (group.rank() + group.size() - 1) % group.size();
    if (group.size() == 1) return;
    std::vector<WorkPtr> works;
    for (int tag = 0; tag < 6; ++tag) {
      const Tensor t = make_tensor(group, count, dtype, layout);
      fill(t, group.rank(), tag);
      works.push_back(group.send(t, next, {.tag = tag}));
    }
    for (int tag = 5; tag >= 0; --tag) {
      const Tensor t = make_tensor(group, count, dtype, layout);
      WorkPtr work = tag % 2 ? group.recv(t, before, {.tag = tag}) : group.recv_anysource(t, {.tag = tag});
      work->wait();
      EXPECT_EQ(work->source_rank(), before);
      expect(t, expected_input(t, before, tag), "tag " + std::to_string(tag));
    }
    for (const WorkPtr& work : works) work->wait();
    group.barrier()->wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GroupContract, ::testing::ValuesIn(group_fixtures()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hookline::testing
