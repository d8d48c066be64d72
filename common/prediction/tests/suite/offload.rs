//! Offloaded states and activations, by hand for `tiny` on 4 ranks. A rank's slice of its units:
//! 8,192 of the embedding, 53,312 of each block, 8,224 of the head, 229,664 in all.

use events::Place::{self, Device, Disk, Host};
use events::{Class, Route};
use model::{Checkpointing, ModelConfig};
use prediction::{
    Job, Placement, RankPrediction, Recipe, Room, RunCounts, Saving, Stage, Strategy, Transfers, predict,
    remedies,
};

const SLICES: u64 = 229_664;
const BLOCK: u64 = 53_312;
/// Elements at a time: 14 pieces, of which a block has 20,000 + 20,000 + 13,312.
const PIECE: u64 = 20_000;
const PIECES: u64 = 14;
/// One state of the optimizer on disk: 8 pages + 4 × (20 + 20 + 13) + 9.
const STATE_PAGES: u64 = 8 + 4 * 53 + 9;
const PAGE: u64 = 4096;
/// The reads from disk before the norm is known, in bytes and calls: the three states of as many
/// pieces as there are buffers, the embedding's, a block's and the first two of another.
const READ_AHEAD: (u64, u64) = (3 * (8 + 20 + 20 + 13 + 20 + 20) * PAGE, 3 * 6);
/// A block's input: 8 × 128 tokens, 128 wide, in f32.
const INPUT: u64 = 8 * 128 * 128 * 4;

fn job(stage: Stage, optimizer: Place, parameters: Place) -> Job {
    let placement = Placement { optimizer, parameters, sub_group_size: Some(PIECE), ..Placement::default() };
    Job { placement, ..Job::new(ModelConfig::tiny(), stage, 4) }
}

fn rank(job: &Job) -> RankPrediction {
    predict(job).unwrap().ranks[0]
}

/// Returns the peak bytes of parameters, gradients, optimizer.
fn states(rank: &RankPrediction, place: Place) -> [u64; 3] {
    [Class::Parameters, Class::Gradients, Class::Optimizer].map(|class| rank.place(place).peak(class))
}

/// Returns the bytes and calls, in [`Route::ALL`]'s order: device to host, host to device, host to
/// disk, disk to host.
fn moved(transfers: Transfers) -> [(u64, u64); 4] {
    std::array::from_fn(|i| (transfers.bytes(Route::ALL[i]), transfers.calls(Route::ALL[i])))
}

/// Returns the transfers of the update alone, which a skipped step does not have.
fn updates(rank: &RankPrediction) -> [(u64, u64); 4] {
    let (step, skipped) = (moved(rank.transfers.step), moved(rank.transfers.skipped_step));
    std::array::from_fn(|i| (step[i].0 - skipped[i].0, step[i].1 - skipped[i].1))
}

#[test]
fn the_optimizers_states_in_main_memory() {
    for (stage, elements, gradients) in [
        (Stage::Ddp, 4 * SLICES, 0),
        (Stage::Zero1, SLICES, 0),
        (Stage::Zero2, SLICES, SLICES),
        (Stage::Zero3, SLICES, SLICES),
    ] {
        for recipe in [Recipe::FP32, Recipe::MIXED] {
            let away = rank(&Job { recipe, ..job(stage, Host, Device) });
            let here = rank(&Job { recipe, ..job(stage, Device, Device) });
            let [parameters, held, _] = states(&here, Device);
            let left = if gradients > 0 { 0 } else { held };
            assert_eq!(states(&away, Device), [parameters, left, 0], "{stage}");
            assert_eq!(states(&away, Host), [0, gradients * recipe.gradients, 12 * elements], "{stage}");
            assert!(away.disk.total_peak == 0, "{stage}");
            assert_eq!(away.traffic.step, here.traffic.step, "{stage}");
        }
    }
}

/// Hybrid sharding sums shards over groups, so its gradients stay on the device.
#[test]
fn gradients_of_hybrid_sharding_stay() {
    let hybrid = |optimizer| {
        let job = Job { world_size: 8, ..job(Stage::Zero3, optimizer, Device) };
        rank(&Job { strategy: Strategy::HybridShard, shard_group: Some(4), ..job })
    };
    let away = hybrid(Host);
    assert_eq!(states(&away, Host), [0, 0, 12 * SLICES]);
    assert_eq!(states(&away, Device), [4 * SLICES, 4 * SLICES, 0]);
    assert_eq!(updates(&away)[0], (4 * SLICES, PIECES));
    assert!(away.transfers.skipped_step.is_none());
}

/// On disk each piece of a state, and each unit's parameters, take whole pages.
#[test]
fn what_rests_on_disk_takes_whole_pages() {
    let disk = rank(&job(Stage::Zero3, Disk, Disk));
    let parameters = (8 + 4 * 53 + 9) * PAGE;
    assert_eq!(states(&disk, Disk), [parameters, 0, 3 * STATE_PAGES * PAGE]);
    assert_eq!(states(&disk, Host), [0; 3]);
    assert_eq!(states(&disk, Device), [0, 4 * SLICES, 0]);
    let writes = (parameters + 3 * STATE_PAGES * PAGE, 6 + 3 * PIECES);
    assert_eq!(moved(disk.transfers.setup), [(0, 0), (0, 0), writes, (0, 0)]);
}

/// The transfers of the update for each pair of places, in f32 and in 16 bits.
#[test]
fn updates_between_places() {
    let nothing = (0, 0);
    let state = (3 * STATE_PAGES * PAGE, 3 * PIECES);
    let unread = (state.0 - READ_AHEAD.0, state.1 - READ_AHEAD.1);
    for (recipe, width, on_disk) in [
        (Recipe::FP32, 4, 32_768 + 4 * 213_248 + 36_864),
        (Recipe::MIXED, 2, 16_384 + 4 * (2 * 40_000 + 26_624) + 20_480),
    ] {
        let moves = (width * SLICES, PIECES);
        let pages = (on_disk, PIECES);
        // In f32 the optimizer updates the parameters themselves, so they visit the device.
        let visits = |transfers| if width == 4 { transfers } else { nothing };
        let both = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1 + b.1);
        for (optimizer, parameters, expected) in [
            (Device, Device, [nothing; 4]),
            (Device, Host, [moves, visits(moves), nothing, nothing]),
            (Device, Disk, [moves, visits(moves), pages, visits(pages)]),
            (Host, Device, [nothing, moves, nothing, nothing]),
            (Host, Host, [nothing; 4]),
            (Host, Disk, [nothing, nothing, pages, nothing]),
            (Disk, Device, [moves, moves, state, unread]),
            (Disk, Host, [moves, nothing, state, unread]),
            (Disk, Disk, [moves, nothing, both(state, pages), unread]),
        ] {
            let rank = rank(&Job { recipe, ..job(Stage::Zero3, optimizer, parameters) });
            assert_eq!(updates(&rank), expected, "{optimizer} {parameters} {width}");
        }
    }
}

/// An overflow drops the states that were read ahead, if there are any. More micro-batches do not
/// read more of it.
#[test]
fn a_skipped_step_has_read_the_first_pieces() {
    for stage in Stage::ALL {
        let skipped = |job: Job| moved(rank(&job).transfers.skipped_step)[3];
        let disk = Job { micro_batches: 3, ..job(stage, Disk, Device) };
        let share = if stage == Stage::Ddp { 4 } else { 1 };
        let expected = if share == 1 { READ_AHEAD } else { (3 * (20 + 13 + 4 * 20) * PAGE, 18) };
        assert_eq!(skipped(disk.clone()), expected, "{stage}");
        let mut all = disk;
        all.placement.buffers = Some(1000);
        let state = rank(&all).transfers.step;
        assert_eq!(skipped(all), (state.bytes(Route::DiskToHost), state.calls(Route::DiskToHost)), "{stage}");
        assert_eq!(skipped(job(stage, Host, Device)), (0, 0), "{stage}");
    }
}

/// Every micro-batch's gradients follow the optimizer's states, in the type in which they are sent;
/// otherwise the update fetches them once, in their own type.
#[test]
fn gradients_follow_the_optimizer() {
    let with = |stage, optimizer| {
        let job = Job { micro_batches: 3, recipe: Recipe::MIXED, ..job(stage, optimizer, Device) };
        rank(&Job { converted_gradients: Some(4), ..job })
    };
    for stage in [Stage::Zero2, Stage::Zero3] {
        let host = with(stage, Host);
        assert_eq!(moved(host.transfers.skipped_step)[0], (3 * 4 * SLICES, 3 * 6), "{stage}");
        assert_eq!(updates(&host)[0], (0, 0), "{stage}");
        assert_eq!(updates(&with(stage, Disk))[0], (2 * SLICES, PIECES), "{stage}");
        // One unit's gradients arrive at a time, next to the update's buffers for parameters.
        assert_eq!(host.host.peak(Class::Workspace), 4 * BLOCK + 3 * 2 * PIECE, "{stage}");
    }
    for (stage, share) in [(Stage::Ddp, 4), (Stage::Zero1, 1)] {
        let host = with(stage, Host);
        assert!(host.transfers.skipped_step.is_none(), "{stage}");
        assert_eq!(updates(&host)[0].0, 2 * share * SLICES, "{stage}");
    }
}

/// Returns the peak workspace of `job` with one token, so that nothing else needs as much.
fn workspace(job: Job) -> [u64; 2] {
    let rank = rank(&Job { batch_size: 1, tokens: 1, ..job });
    [Device, Host].map(|place| rank.place(place).peak(Class::Workspace))
}

/// The buffers through which parameters, gradients and pieces pass.
#[test]
fn staging_buffers() {
    let [backward, _] = workspace(job(Stage::Zero3, Device, Device));
    let state = 3 * 20 * PAGE;
    let (shard, in_pages) = (4 * BLOCK, 53 * PAGE);
    for (stage, optimizer, parameters, device, host) in [
        (Stage::Ddp, Host, Device, backward, 3 * 4 * PIECE),
        // Of 14 pieces 6 pass to and from the disk at a time.
        (Stage::Zero1, Disk, Device, backward, 6 * (state + 4 * PIECE)),
        (Stage::Zero3, Disk, Device, backward, 6 * (state + 4 * PIECE)),
        // One unit's gradients follow the optimizer's states during the next one's backward.
        (Stage::Zero3, Host, Device, backward + shard, shard),
        (Stage::Zero3, Host, Host, 3 * shard + backward + shard, shard),
        (Stage::Zero3, Host, Disk, 3 * shard + backward + shard, 3 * (in_pages + 20 * PAGE) + shard),
        (Stage::Zero3, Device, Host, 3 * (shard + 4 * PIECE), 0),
        (Stage::Zero3, Device, Disk, 3 * (shard + 4 * PIECE), 3 * (in_pages + 20 * PAGE)),
        (Stage::Zero3, Disk, Disk, 3 * shard + backward, 3 * in_pages + 6 * (state + 4 * PIECE + 20 * PAGE)),
    ] {
        let staged = workspace(job(stage, optimizer, parameters));
        assert_eq!(staged, [device, host], "{stage} {optimizer} {parameters}");
    }
    // In 16 bits parameters that stay on the device are staged next to the master weights' pieces.
    let mixed = Job { recipe: Recipe::MIXED, ..job(Stage::Zero1, Disk, Device) };
    assert_eq!(workspace(mixed)[1], 6 * (state + 2 * PIECE + 2 * PIECE));
    // A block at a time there are 6 pieces, of which 3 pass at a time.
    let mut whole = job(Stage::Zero1, Disk, Device);
    whole.placement.sub_group_size = Some(BLOCK);
    assert_eq!(workspace(whole)[1], 3 * (3 * 53 * PAGE + 4 * BLOCK));
    // No more buffers than pieces or units.
    let mut many = job(Stage::Zero3, Disk, Host);
    many.placement.buffers = Some(100);
    let [device, host] = workspace(many);
    assert_eq!((device, host), (6 * shard + backward, PIECES * (state + 4 * PIECE)));
}

/// Parameters are moved to the device once per all-gather from the rank's own shard, except that
/// backward finds the shards that forward gathered last. The step's first forward reads none of
/// them from disk if the previous update continues until then.
#[test]
fn gathers_fetch_shards() {
    // Backward finds the head gathered, and the last two blocks' shards in buffers. The third
    // buffer was the head's.
    let step = 2 * SLICES - 8_224 - 2 * BLOCK;
    let pages = 2 * (8 + 4 * 53) + 9 - 2 * 53;
    for (place, on_disk) in [(Host, 0), (Disk, 1)] {
        let rank = rank(&Job { micro_batches: 2, ..job(Stage::Zero3, Host, place) });
        let once = (on_disk * (8 + 4 * 53 + 9) * PAGE, on_disk * 6);
        let read = (on_disk * 2 * pages * PAGE - once.0, on_disk * 2 * 9 - once.1);
        assert_eq!(moved(rank.transfers.skipped_step)[1..], [(2 * 4 * step, 2 * 9), (0, 0), read]);
        assert_eq!(moved(rank.transfers.reread), [(0, 0), (0, 0), (0, 0), once]);
        assert_eq!(moved(rank.transfers.evaluation_batch), [(0, 0), (4 * SLICES, 6), (0, 0), once]);
    }
    // An update does not continue if it runs on the device, has units to gather, or may not
    // overlap.
    let disk = job(Stage::Zero3, Host, Disk);
    for over in [
        job(Stage::Zero3, Device, Disk),
        Job { persistence_threshold: 200, ..disk.clone() },
        Job { overlap: false, ..disk },
    ] {
        assert!(rank(&over).transfers.reread.is_none());
    }
    // With secondary shards backward gathers from slices that never left the device.
    let secondary = rank(&Job { secondary_shards: Some(2), ..job(Stage::Zero3, Host, Host) });
    assert_eq!(moved(secondary.transfers.skipped_step)[1], (4 * SLICES, 6));
    assert_eq!(states(&secondary, Device), [4 * 2 * SLICES, 0, 0]);
    assert_eq!(states(&secondary, Host)[0], 4 * SLICES);
}

/// Units that every rank holds in full stay on the device; their slices are updated where the
/// optimizer's states are. Small tensors: two norms of 128 per block, one at the end.
#[test]
fn persistent_units_stay() {
    let whole = 9 * 128;
    let with = |recipe| rank(&Job { persistence_threshold: 200, recipe, ..job(Stage::Zero3, Host, Host) });
    let rank = with(Recipe::FP32);
    assert_eq!(states(&rank, Device), [4 * whole, 0, 0]);
    assert_eq!(states(&rank, Host), [4 * (SLICES - whole / 4), 4 * SLICES, 12 * SLICES]);
    assert_eq!(updates(&rank)[1], (whole, 5), "a slice of each returns to the device");
    // In 16 bits the update stages their parameters: at most 64 at a time, next to an arrival.
    assert_eq!(with(Recipe::MIXED).host.peak(Class::Workspace), 2 * (BLOCK - 64) + 3 * 2 * 64);
}

#[test]
fn inputs_of_blocks() {
    let with = |activations| {
        let placement = Placement { activations, ..Placement::default() };
        let job = Job { placement, micro_batches: 2, ..Job::new(ModelConfig::tiny(), Stage::Zero2, 4) };
        rank(&Job { checkpointing: Checkpointing::Block, ..job })
    };
    // Token ids and targets; what a block's backward reads, its input included.
    let batch = 2 * 4 * 8 * 128;
    let block = 8 * 128 * 4 * (2 + 4 * 128 + 3 * 128 + 128 + 3 * 384) + 8 * 4 * 128 * 4;
    let [here, host, disk] = [Device, Host, Disk].map(with);
    assert_eq!(here.memory.peak(Class::Activations), batch + 3 * INPUT + block);
    assert_eq!(host.memory.peak(Class::Activations), batch + INPUT + block, "one comes back ahead");
    assert_eq!(disk.memory.peak(Class::Activations), batch + block);
    assert_eq!(host.host.peak(Class::Activations), 4 * INPUT);
    assert_eq!((disk.disk.total_peak, disk.host.total_peak), (4 * INPUT, 2 * INPUT));
    let each = (2 * 4 * INPUT, 2 * 4);
    assert_eq!(moved(host.transfers.step), [each, each, (0, 0), (0, 0)]);
    assert_eq!(moved(disk.transfers.step), [each; 4]);
    for away in [host, disk] {
        assert_eq!(away.transfers.skipped_step, away.transfers.step);
        assert!(away.transfers.evaluation_batch.is_none());
    }
    // The shortest sequence's input takes a page on disk.
    let placement = Placement { activations: Disk, ..Placement::default() };
    let short = Job { placement, batch_size: 1, tokens: 1, ..Job::new(ModelConfig::tiny(), Stage::Ddp, 4) };
    let short = rank(&Job { checkpointing: Checkpointing::Block, ..short });
    assert_eq!((short.disk.total_peak, short.host.total_peak), (4 * PAGE, 2 * PAGE));
    assert_eq!(moved(short.transfers.step), [(4 * 512, 4), (4 * 512, 4), (4 * PAGE, 4), (4 * PAGE, 4)]);
}

/// The hash at the end gathers weights in main memory unit by unit. A checkpoint copies a rank's
/// part there, or reads the states stored on disk.
#[test]
fn states_in_main_memory() {
    let gathering = |mut job: Job| {
        job.placement.gathers_states = true;
        rank(&job)
    };
    let saving = |saving, mut job: Job| {
        job.placement.saving = saving;
        rank(&job)
    };
    let copied = saving(Saving::Copying, job(Stage::Ddp, Device, Device));
    let sharded = saving(Saving::Copying, job(Stage::Zero3, Device, Device));
    assert_eq!(copied.host, sharded.host, "each rank saves a part");
    let plain = gathering(job(Stage::Zero3, Device, Device));
    assert_eq!(plain.host.total_peak, 4 * 4 * BLOCK, "one unit at a time");
    assert!(plain.transfers.checkpoint.is_none());
    // A block's attention and norms stay whole: they come before and after the rest of the block.
    let whole = gathering(Job { persistence_threshold: 128 * 128, ..job(Stage::Zero3, Device, Device) });
    assert_eq!(whole.host.total_peak, 4 * 4 * BLOCK, "two units at a time");

    let states = saving(Saving::Streaming, job(Stage::Zero3, Disk, Disk));
    let reads = [(0, 0), (0, 0), (0, 0), (3 * STATE_PAGES * PAGE, 3 * PIECES)];
    assert_eq!(moved(states.transfers.checkpoint), reads);
    let parameters = |recipe| saving(Saving::Streaming, Job { recipe, ..job(Stage::Zero3, Device, Disk) });
    let weights = [(0, 0), (0, 0), (0, 0), ((8 + 4 * 53 + 9) * PAGE, 6)];
    assert_eq!(moved(parameters(Recipe::FP32).transfers.checkpoint), weights);
    assert!(parameters(Recipe::MIXED).transfers.checkpoint.is_none(), "master weights are read");

    // On disk: a unit's weights gathered, and the buffer through which they come.
    let resting = gathering(Job { world_size: 1, ..job(Stage::Zero3, Disk, Device) }).host;
    assert_eq!(resting.peak(Class::GatheredParameters), 4 * 4 * BLOCK);
    let through = rank(&job(Stage::Zero3, Device, Disk)).host.total_peak;
    let gathered = gathering(job(Stage::Zero3, Device, Disk)).host.total_peak;
    let slots = 3 * 53 * PAGE;
    assert_eq!((through, gathered), (slots + 3 * 20 * PAGE, slots + 4 * 4 * BLOCK + 53 * PAGE));
}

#[test]
fn a_run_moves_what_its_parts_move() {
    let rank = rank(&job(Stage::Zero3, Disk, Disk));
    let done = RunCounts {
        steps: 3,
        skipped: 2,
        fresh_starts: 6,
        evaluations: 5,
        evaluation_batches: 7,
        checkpoints: 4,
    };
    let parts = [
        (rank.transfers.setup, 1),
        (rank.transfers.step, 3),
        (rank.transfers.skipped_step, 2),
        (rank.transfers.reread, 6),
        (rank.transfers.evaluation_batch, 7),
        (rank.transfers.checkpoint, 4),
    ];
    for route in Route::ALL {
        let bytes: u64 = parts.iter().map(|(part, times)| times * part.bytes(route)).sum();
        let calls: u64 = parts.iter().map(|(part, times)| times * part.calls(route)).sum();
        assert_eq!(
            (rank.transfers.total(done).bytes(route), rank.transfers.total(done).calls(route)),
            (bytes, calls)
        );
    }
}

#[test]
fn placements_that_no_run_can_have() {
    let problem = |job: Job| predict(&job).unwrap_err().to_string();
    for stage in [Stage::Ddp, Stage::Zero1, Stage::Zero2] {
        assert!(problem(job(stage, Device, Host)).contains("choose ZeRO-3"), "{stage}");
    }
    let mut blocks = job(Stage::Zero3, Device, Device);
    blocks.placement.activations = Disk;
    assert!(problem(blocks).contains("choose checkpointing of blocks"));
    let mut buffers = job(Stage::Zero3, Host, Host);
    buffers.placement.buffers = Some(0);
    assert_eq!(problem(buffers), "staging buffers is 0: give at least 1");
    let mut empty = job(Stage::Zero3, Host, Host);
    empty.placement.sub_group_size = Some(0);
    assert_eq!(problem(empty), "elements per sub-group is 0: give at least 1");
    // Another stage keeps the settings that it supports.
    let elsewhere = job(Stage::Zero3, Disk, Disk).with_stage(Stage::Zero1).placement;
    assert_eq!((elsewhere.optimizer, elsewhere.parameters), (Disk, Device));
}

/// Returns the remedies of `job` in `room`, without those of other knobs: bytes saved, and bytes
/// moved.
fn offers(room: Room, job: &Job) -> Vec<(String, u64, u64)> {
    let all = remedies(room, job).alone.into_iter();
    let offered = all.filter(|remedy| remedy.how.starts_with("--offload"));
    offered.map(|remedy| (remedy.how, remedy.saves, remedy.moves)).collect()
}

/// A device that is too small: one remedy per kind of state and place, with what it frees there
/// and moves per step. Main memory that is limited rules out what would not fit there.
#[test]
fn remedies_send_states_away() {
    // In fp32: the optimizer's two states; gradients too if they follow into main memory.
    let [both, all] = [8 * SLICES, 12 * SLICES];
    let mut plain = Job { checkpointing: Checkpointing::Block, ..job(Stage::Zero2, Device, Device) };
    plain.placement.sub_group_size = None;
    let device = |host| Room::of(Device, 1, [None, host, None]);
    let state = (8 + 4 * 53 + 9) * PAGE;
    let offered = offers(device(None), &plain);
    let named = |how: &str| offered.iter().find(|(offered, ..)| offered == how).unwrap();
    assert_eq!(offered.len(), 4, "{offered:?}");
    let host = named("--offload-optimizer cpu");
    assert!(both < host.1 && host.1 <= all, "one unit's gradients arrive: {host:?}");
    assert_eq!(host.2, 2 * 4 * SLICES, "gradients there, parameters back");
    let disk = named("--offload-optimizer disk");
    assert_eq!((disk.1, disk.2), (both, 2 * 4 * SLICES + 2 * 3 * state));
    assert_eq!(named("--offload-activations cpu").2, 2 * 4 * INPUT);
    assert_eq!(named("--offload-activations disk").2, 4 * 4 * INPUT);

    let limited = offers(device(Some(12 * SLICES)), &plain);
    let names: Vec<&str> = limited.iter().map(|(how, ..)| how.as_str()).collect();
    assert!(!names.contains(&"--offload-optimizer cpu"), "gradients are there too: {names:?}");
    assert!(names.contains(&"--offload-activations cpu"), "{names:?}");
}

/// Main memory that is too small: the states stored there move to the disk or back to the device.
#[test]
fn remedies_leave_main_memory() {
    let room = |device| Room::of(Host, 1, [device, None, None]);
    let away = job(Stage::Zero3, Host, Host);
    let names = |room| offers(room, &away).into_iter().map(|(how, ..)| how).collect::<Vec<_>>();
    let all = names(room(None));
    for how in ["optimizer none", "optimizer disk", "parameters none", "parameters disk"] {
        assert!(all.contains(&format!("--offload-{how}")), "{how}: {all:?}");
    }
    let tight = names(room(Some(rank(&away).memory.total_peak)));
    assert!(!tight.iter().any(|how| how.ends_with("none")), "the device has no room: {tight:?}");
    let buffers = offers(room(None), &job(Stage::Ddp, Host, Device));
    assert!(buffers.iter().any(|(how, saves, _)| how == "--offload-buffers 1" && *saves == 2 * 4 * PIECE));
}
