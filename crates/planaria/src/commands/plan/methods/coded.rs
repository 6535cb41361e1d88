//! What a code costs each machine as machines leave and come, for `planaria plan`.
//!
//! Counted from the plans that a run would make (`numerics::coding::cost`). Never measures time.

use planaria_learn::linear::{Batches, Model};
use planaria_numerics::coding::cost::{Cost, cost};
use planaria_numerics::coding::exact::Residue;
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::coding::group::Judge;
use planaria_numerics::coding::quality::{self, Quality};
use planaria_numerics::coding::{Error, Precision, Slot, ring};
use planaria_recipe::Plan;
use planaria_recipe::train::{Coded, LinearPrecision};
use planaria_runs::failure::{Failure, Result};
use planaria_text::number::{bytes, grouped};
use serde_json::{Value, json};
use std::fmt::Write;

/// A code and its costs.
struct Costs {
    code: Coded,
    quality: Option<Quality>,
    rows: usize,
    width: usize,
    height: usize,
    value_bytes: u64,
    /// For each number of machines from the threshold on.
    table: Vec<(usize, Cost)>,
}

/// The costs of a plan's code; nothing where it has none.
pub fn costs(plan: &Plan) -> Result<Option<super::Costs>> {
    let costs = Costs::of(plan)?;
    Ok(costs
        .map(|costs| super::Costs { text: costs.text(), document: ("coded", costs.document()) }))
}

impl Costs {
    fn of(plan: &Plan) -> Result<Option<Self>> {
        let Some(code) = plan.recipe.train.code() else { return Ok(None) };
        let quality = quality::of(code).map_err(Failure::user)?;
        // Sizes do not depend on what labels are called.
        let mut recipe = plan.recipe.clone();
        recipe.train.class_weights.clear();
        let model = Model::of(&recipe, plan.input, &[]).map_err(Failure::user)?;
        let batches = Batches::of(&plan.recipe.train, plan.examples).map_err(Failure::user)?;
        let sizes = Sizes { batches, width: model.width(), columns: model.columns() };
        let (threshold, machines) = (code.threshold, code.machines);
        let table = match code.precision {
            LinearPrecision::F32 => {
                let code = Generator::<f64>::stored(threshold, machines);
                code.and_then(|code| table(&code, Precision::F32, sizes, 4))
            }
            LinearPrecision::F64 => {
                let code = Generator::<f64>::stored(threshold, machines);
                code.and_then(|code| table(&code, Precision::F64, sizes, 8))
            }
            LinearPrecision::Exact => {
                let code = Generator::<Residue>::cauchy(threshold, machines);
                code.and_then(|code| table(&code, Precision::Exact, sizes, 8))
            }
        };
        let value_bytes = if code.precision == LinearPrecision::F32 { 4 } else { 8 };
        Ok(Some(Self {
            code: *code,
            quality,
            rows: plan.examples,
            width: model.width(),
            height: batches.blocks().height(),
            value_bytes,
            table: table.map_err(Failure::user)?,
        }))
    }

    /// As a person reads it.
    fn text(&self) -> String {
        let Coded { threshold, machines, precision, .. } = self.code;
        let mut text = format!(
            "\ncode        any {threshold} of {machines} machines are enough ({}); {}\n",
            precision.name(),
            self.condition()
        );
        let _ = writeln!(
            text,
            "coded data  {} rows of {} values in {threshold} blocks of {} rows\n",
            grouped(self.rows as u64),
            grouped(self.width as u64),
            grouped(self.height as u64)
        );
        let head =
            ["machines", "may be lost", "stored", "rows", "multiply-adds", "sent", "decoding"];
        let mut rows = vec![head.map(String::from)];
        rows.extend(self.table.iter().map(|(machines, cost)| {
            let each = Each::of(*machines, cost, self.code.threshold, self.value_bytes);
            [
                machines.to_string(),
                cost.losses.to_string(),
                bytes(cost.storage_bytes),
                grouped(cost.rows_max),
                grouped(each.macs),
                bytes(each.sent_bytes),
                format!("{:.1}%", 100.0 * each.decoding_share),
            ]
        }));
        let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  "));
        }
        text.push_str(
            "  each machine, for one step; sent are products and entries, and as much is received; \
             decoding as a share of all multiply-adds\n\n",
        );
        text
    }

    /// The same as data.
    fn document(&self) -> Value {
        let rows: Vec<Value> = self
            .table
            .iter()
            .map(|(machines, cost)| {
                let each = Each::of(*machines, cost, self.code.threshold, self.value_bytes);
                json!({
                    "machines": machines,
                    "losses_tolerated": cost.losses,
                    "storage_bytes": cost.storage_bytes,
                    "rows_max": cost.rows_max,
                    "rows_min": cost.rows_min,
                    "macs_per_machine": each.macs,
                    "sent_bytes_per_machine": each.sent_bytes,
                    "received_bytes_per_machine": each.sent_bytes,
                    "macs": cost.work_macs,
                    "decode_macs": 2 * cost.decode_macs,
                    "traffic_values": 2 * cost.traffic_values,
                })
            })
            .collect();
        json!({
            "threshold": self.code.threshold,
            "machines": self.code.machines,
            "precision": self.code.precision.name(),
            "rows": self.rows,
            "width": self.width,
            "block_rows": self.height,
            "condition": self.quality.map(|q| json!({
                "median": q.median, "most": q.most, "worst": q.worst,
            })),
            "by_machines": rows,
        })
    }

    fn condition(&self) -> String {
        match self.quality {
            Some(q) => format!(
                "condition of groups: half below {:.1}, 99% below {:.1}, worst {:.1}",
                q.median, q.most, q.worst
            ),
            None => "whole numbers: nothing is rounded, so groups have no condition".into(),
        }
    }
}

/// Shares of one machine.
struct Each {
    macs: u64,
    sent_bytes: u64,
    decoding_share: f64,
}

impl Each {
    fn of(machines: usize, cost: &Cost, threshold: usize, value_bytes: u64) -> Self {
        // Products to decoders, and entries from them. A group's decoder is a machine outside it,
        // or, where all machines are members, a member, which sends itself nothing.
        let outside = if machines > threshold { threshold } else { threshold - 1 } as u64;
        let sent_values = 2 * cost.traffic_values * outside / threshold.max(1) as u64;
        let machines = machines.max(1) as u64;
        // As much is decoded as transformed back.
        let decoding = 2 * cost.decode_macs;
        let share = decoding as f64 / (cost.work_macs + decoding).max(1) as f64;
        Self {
            macs: cost.work_macs.div_ceil(machines),
            sent_bytes: (sent_values * value_bytes).div_ceil(machines),
            decoding_share: share,
        }
    }
}

/// What is multiplied: rows in batches, by columns of weights.
#[derive(Clone, Copy)]
struct Sizes {
    batches: Batches,
    /// Values in a row.
    width: usize,
    columns: usize,
}

fn table<S: Judge>(
    code: &Generator<S>,
    precision: Precision,
    sizes: Sizes,
    value_bytes: usize,
) -> Result<Vec<(usize, Cost)>, Error> {
    let Sizes { batches, width, columns } = sizes;
    let (blocks, places) = (batches.blocks(), batches.places(0));
    let mut table = Vec::new();
    for count in code.threshold()..=code.machines() {
        let here = (0..count as u16).map(Slot).collect();
        let plan = ring::arrange(code, precision, places.clone(), &here, None)?;
        if let Some(plan) = plan.ready() {
            table.push((count, cost(code, &plan, blocks, width, columns, value_bytes)));
        }
    }
    Ok(table)
}
