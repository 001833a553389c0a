//! `export`: learned points and true samples for other programs.

use std::path::Path;

use pushforward_core::trainer::LawPair;

use super::print;
use super::train::session;
use crate::cli::ExportArgs;
use crate::failure::Failure;
use crate::run::RunFolder;

/// Writes `laws.npz` and one CSV file per cloud.
///
/// # Errors
/// [`Failure::Input`] if there is no usable checkpoint, [`Failure::Run`] if a file cannot be written.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let folder = RunFolder::open(&args.run)?;
    let session = session(&args.how)?;
    let (_, mut experiment) = session.load(&folder, args.checkpoint)?;
    let evaluation = experiment
        .evaluate(true)
        .map_err(|error| Failure::on_the_way(&error))?;
    if evaluation.laws.is_empty() {
        return Err(Failure::input(format!(
            "{}: this run learned no return law, expected one that evaluates a policy",
            folder.path().display()
        )));
    }
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| folder.path().join("export"));
    std::fs::create_dir_all(&out)
        .map_err(|e| Failure::input(format!("cannot write to {}: {e}", out.display())))?;
    write_npz(&evaluation.laws, &out.join("laws.npz"))?;
    let mut text = format!("{}\n", out.join("laws.npz").display());
    for (index, law) in evaluation.laws.iter().enumerate() {
        for (kind, points) in [("learned", &law.learned), ("truth", &law.truth)] {
            let path = out.join(format!("{kind}_{index}.csv"));
            write_csv(points, law.dim, &path)?;
            text.push_str(&format!("{}  ({})\n", path.display(), law.name));
        }
    }
    if args.how.quiet {
        return Ok(());
    }
    print(&text)
}

/// Arrays `learned_I` [N, d] and `truth_I` [M, d] for each law I.
fn write_npz(laws: &[LawPair], path: &Path) -> Result<(), Failure> {
    use npyz::WriterBuilder;
    let write = || -> std::io::Result<()> {
        let mut archive = npyz::npz::NpzWriter::create(path)?;
        for (index, law) in laws.iter().enumerate() {
            for (kind, points) in [("learned", &law.learned), ("truth", &law.truth)] {
                let shape = [(points.len() / law.dim) as u64, law.dim as u64];
                let mut writer = archive
                    .array::<f32>(&format!("{kind}_{index}"), Default::default())?
                    .default_dtype()
                    .shape(&shape)
                    .begin_nd()?;
                writer.extend(points.iter().copied())?;
                writer.finish()?;
            }
        }
        archive.zip_writer().finish()?;
        Ok(())
    };
    write().map_err(|e| Failure::run(format!("cannot write {}: {e}", path.display())))
}

/// One point per row under a header of coordinate names.
fn write_csv(points: &[f32], dim: usize, path: &Path) -> Result<(), Failure> {
    let write = || -> Result<(), csv::Error> {
        let mut writer = csv::Writer::from_path(path)?;
        writer.write_record((0..dim).map(|index| format!("return_{index}")))?;
        for point in points.chunks_exact(dim) {
            writer.write_record(point.iter().map(f32::to_string))?;
        }
        writer.flush()?;
        Ok(())
    };
    write().map_err(|e| Failure::run(format!("cannot write {}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn npz_and_csv_hold_the_points() {
        let folder = tempfile::tempdir().unwrap();
        let law = LawPair {
            name: "start, forward".into(),
            dim: 3,
            learned: vec![0.1, 1.0, 2.0, 3.0, 4.0, 5.0],
            truth: vec![7.0, 8.0, 9.0],
        };
        let path = folder.path().join("laws.npz");
        write_npz(std::slice::from_ref(&law), &path).unwrap();
        let mut archive = npyz::npz::NpzArchive::open(&path).unwrap();
        let learned = archive.by_name("learned_0").unwrap().unwrap();
        assert_eq!(learned.shape(), [2, 3]);
        assert_eq!(learned.into_vec::<f32>().unwrap(), law.learned);
        let truth = archive.by_name("truth_0").unwrap().unwrap();
        assert_eq!(truth.into_vec::<f32>().unwrap(), law.truth);
        let csv = folder.path().join("learned_0.csv");
        write_csv(&law.learned, 3, &csv).unwrap();
        assert_eq!(
            std::fs::read_to_string(csv).unwrap(),
            "return_0,return_1,return_2\n0.1,1,2\n3,4,5\n"
        );
    }
}
